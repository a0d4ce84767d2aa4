package plugin_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/usertest"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	grants "github.com/reeveproject/reeve/proto/remit"
)

// debug finds the process at a socket and has it be an instance.
func (n *testNode) debug(t *testing.T, socket string, c plugintest.Configuration) (*plugin.Instance, error) {
	t.Helper()
	ctx, cancel := timeout(t)
	defer cancel()
	found, err := n.launcher.Debugged(ctx, "one", socket)
	if err != nil {
		t.Fatal(err)
	}
	return n.take(t, found, c)
}

// take has a process that was found be an instance, of a role with a bound that nothing enforces on it.
func (n *testNode) take(t *testing.T, found *plugin.Debugged, c plugintest.Configuration) (*plugin.Instance, error) {
	t.Helper()
	ctx, cancel := timeout(t)
	defer cancel()
	// The catalog's executable is not even here.
	s := spec("sha256:"+strings.Repeat("0", 64), everything, c)
	s.Role, s.Debug = found.Role, found
	s.Plugin.Grants[0].Grants = append(s.Plugin.Grants[0].Grants, &rolev1.Grant{Name: grants.Limit, Parameters: map[string]string{"memory": "64Mi"}})
	remit, err := n.launcher.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	return n.launcher.Launch(ctx, remit, s, filepath.Join(n.dir, "run", "host.sock"))
}

// TestDebugged has a process that was started by hand be an instance: it is known as what it is, asked to stop as every instance is, and leaves nothing.
func TestDebugged(t *testing.T) {
	t.Parallel()
	node, process := newNode(t), executable(t).ByHand(t, everything)
	instance, err := node.debug(t, process.Socket, plugintest.Configuration{Do: "ready", Write: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	remit := instance.Remit()
	if instance.Process().PID != process.Command.Process.Pid || !remit.Debugged || !remit.SharedUID || remit.UID != uint32(os.Geteuid()) || remit.Tier != clusterv1.Tier_TIER_PRIVILEGED {
		t.Errorf("process %d is the instance %+v of process %d", process.Command.Process.Pid, remit, instance.Process().PID)
	}
	if box := instance.Sandbox(); box.GetNoNewPrivileges() || box.GetTier() != clusterv1.Tier_TIER_PRIVILEGED || box.GetMemoryBytes() != 0 {
		t.Errorf("it is said to be in a sandbox: %v", box)
	}
	if err := instance.Stop(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	<-process.Ended
	if code := process.Command.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if _, err := os.Stat(process.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket is left: %v", err)
	}
	node.nothingLeft(t)
	// What it has written is its successor's, who is another user as root.
	info, err := os.Stat(filepath.Join(node.dir, "data", "roles", "one", "written"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		t.Fatalf("%v, %v", info, err)
	}
	next := node.launch(t, plugintest.Configuration{Do: "ready"})
	if info, err = os.Stat(filepath.Join(node.dir, "data", "roles", "one", "written")); err != nil || info.Sys().(*syscall.Stat_t).Uid != next.Remit().UID {
		t.Errorf("the next instance does not own what the one before wrote: %v, %v", info, err)
	}
}

// TestDebuggedEnds kills the process: the instance has ended and nothing is left.
func TestDebuggedEnds(t *testing.T) {
	t.Parallel()
	node, process := newNode(t), executable(t).ByHand(t, everything)
	instance, err := node.debug(t, process.Socket, plugintest.Configuration{Do: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	if err := process.Command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := timeout(t)
	defer cancel()
	select {
	case <-instance.Done():
	case <-ctx.Done():
		t.Fatal("its end is not noticed")
	}
	node.nothingLeft(t)
}

// TestDebuggedRefuses has the process refuse its configuration: it waits on, and takes another one.
func TestDebuggedRefuses(t *testing.T) {
	t.Parallel()
	node, process := newNode(t), executable(t).ByHand(t, everything)
	var refused *plugin.ConfigurationError
	found, err := node.launcher.Debugged(t.Context(), "one", process.Socket)
	if err != nil {
		t.Fatal(err)
	}
	s := spec("sha256:"+strings.Repeat("0", 64), everything, plugintest.Configuration{})
	s.Configuration, s.Debug = `{"unknown": true}`, found
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.launcher.Launch(t.Context(), remit, s, filepath.Join(node.dir, "host.sock")); !errors.As(err, &refused) {
		t.Fatalf("got: %v", err)
	}
	instance, err := node.debug(t, process.Socket, plugintest.Configuration{Do: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	if err := instance.Stop(t.Context(), 0); err != nil {
		t.Error(err)
	}
	node.nothingLeft(t)
}

// TestDebuggedTwice asks for a process that is an instance already: it goes on as what it is.
func TestDebuggedTwice(t *testing.T) {
	t.Parallel()
	node, process := newNode(t), executable(t).ByHand(t, everything)
	before, err := node.launcher.Debugged(t.Context(), "two", process.Socket)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := node.debug(t, process.Socket, plugintest.Configuration{Do: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	if _, err := node.launcher.Debugged(t.Context(), "two", process.Socket); err == nil || !strings.Contains(err.Error(), "is the instance "+instance.Remit().InstanceID) {
		t.Errorf("it is found once more: %v", err)
	}
	// One that was found before it became an instance, as another core may find it, says so itself.
	if _, err := node.take(t, before, plugintest.Configuration{Do: "ready"}); err == nil || !strings.Contains(err.Error(), "refuses Start") {
		t.Errorf("it is taken once more: %v", err)
	}
	if err := instance.CheckHealth(t.Context()); err != nil {
		t.Errorf("afterwards it is not well: %v", err)
	}
	if now, _ := instance.Status().Get(); now.GetState() != rolev1.RoleState_ROLE_STATE_READY {
		t.Errorf("afterwards it is %v", now)
	}
	if err := instance.Stop(t.Context(), 0); err != nil {
		t.Error(err)
	}
	<-process.Ended
	if code := process.Command.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	node.nothingLeft(t)
}

// TestNotDebugged asks for processes that may not be an instance.
func TestNotDebugged(t *testing.T) {
	t.Parallel()
	node, process := newNode(t), executable(t).ByHand(t, everything)
	own, err := net.Listen("unix", filepath.Join(node.dir, "own.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	link := filepath.Join(node.dir, "link.sock")
	if err := os.Symlink(process.Socket, link); err != nil {
		t.Fatal(err)
	}
	running := node.launch(t, plugintest.Configuration{Do: "ready"})
	sockets, err := filepath.Glob(filepath.Join(node.dir, "run", "plugin", running.Remit().Name, "plugin*"))
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	instance := "is a process of the instance" // as root it has another user besides
	if os.Geteuid() == 0 {
		instance = "runs as user"
	}
	cases := map[string]struct{ role, socket, want string }{
		"no absolute path":          {"one", "plugin.sock", "not absolute"},
		"nobody there":              {"one", filepath.Join(node.dir, "none.sock"), "-debug"},
		"a link":                    {"one", link, "is not a socket"},
		"the core itself":           {"one", own.Addr().String(), "is the core itself"},
		"too long":                  {"one", "/" + strings.Repeat("x", 1<<20), "is too long"},
		"control characters":        {"one", "/tmp/\x1b[2J.sock", "has control characters"},
		"another role":              {"three", process.Socket, "has no such role"},
		"an instance that runs":     {"one", sockets[0], instance},
		"no socket but a directory": {"one", node.dir, "is not a socket"},
	}
	if os.Geteuid() == 0 {
		place := plugintest.Dir(t)
		if err := os.Chmod(place, 0o777); err != nil {
			t.Fatal(err)
		}
		ordinaryUser := uint32(usertest.New(t))
		other := executable(t).ByHand(t, everything, func(c *exec.Cmd) {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
			c.Env = []string{"TMPDIR=" + place}
		})
		cases["another user's"] = struct{ role, socket, want string }{"one", other.Socket, fmt.Sprintf("runs as user %d", ordinaryUser)}
	}
	for name, of := range cases {
		var refused *plugin.DebugError
		if _, err := node.launcher.Debugged(t.Context(), of.role, of.socket); !errors.As(err, &refused) || !strings.Contains(err.Error(), of.want) || len(err.Error()) > 2048 {
			t.Errorf("%s: got %.2048v, want %q in it", name, err, of.want)
		}
	}

	// One that has ended by the time that it is to be taken.
	found, err := node.launcher.Debugged(t.Context(), "two", process.Socket)
	if err != nil {
		t.Fatal(err)
	}
	_ = process.Command.Process.Kill()
	<-process.Ended
	s := spec("sha256:"+strings.Repeat("0", 64), everything, plugintest.Configuration{Do: "ready"})
	s.Role, s.Debug = "two", found
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a process that has ended: %v", err)
	}
	if err := running.Stop(context(), time.Second); err != nil {
		t.Error(err)
	}
	node.nothingLeft(t)
}
