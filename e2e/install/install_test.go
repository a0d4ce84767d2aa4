package install_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/unit"
)

// upTimeout only turns a hang into a failure.
const upTimeout = 2 * time.Minute

// TestInstall installs into a directory of its own, sets that machine up, runs its node as the service would, and uninstalls.
func TestInstall(t *testing.T) {
	place := root(t)
	programs, err := build.ForTests(t.Context(), workspace(t), filepath.Join(place, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	machine := filepath.Join(place, "m")
	destination := []string{"DESTDIR=" + machine, "PREFIX=/usr", "BIN=" + programs.Directory}
	runMake(t, append(destination, "install")...)
	got := files(t, machine)
	for name, want := range installed {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	for name := range got {
		if name != "/usr/share/zsh/site-functions/_reeve" && name != "/usr/share/doc/reeve/LICENSE" {
			t.Errorf("installed %s", name)
		}
	}
	service := filepath.Join(machine, "usr/lib/systemd/system/reeved.service")
	started, err := unit.Settings(service, "ExecStart")
	if err != nil || !slices.Equal(started, []string{"/usr/lib/reeve/reeved --parameters /etc/reeve/node.yaml"}) {
		t.Errorf("the unit starts %q, error %v", started, err)
	}

	n := installedNode{machine: machine, unit: service, run: filepath.Join(place, "r")}
	n.setUp(t)
	first := n.runOnce(t)
	if again := n.runOnce(t); again != first || first == "" {
		t.Errorf("the node was %q, and is %q after it was started again", first, again)
	}

	said := runMake(t, append(destination, "uninstall")...)
	var left []string
	for name := range files(t, machine) {
		left = append(left, name)
		if !strings.HasPrefix(name, "/var/lib/reeve/") && !strings.HasPrefix(name, "/etc/reeve/") {
			t.Errorf("uninstall left %s", name)
		}
	}
	for _, kept := range []string{"/etc/reeve/node.yaml", "/var/lib/reeve/system/configuration.json", "/var/lib/reeve/data/volume.json"} {
		if !slices.Contains(left, kept) {
			t.Errorf("uninstall did not leave %s", kept)
		}
	}
	for _, kept := range []string{"/etc/reeve", "/var/lib/reeve"} {
		if !strings.Contains(said, machine+kept+" is left as it is") {
			t.Errorf("uninstall does not say that it leaves %s: %s", kept, said)
		}
	}
	// The data is enough for the node to go on when it is installed again.
	runMake(t, append(destination, "install")...)
	if again := n.runOnce(t); again != first {
		t.Errorf("the node was %q, and is %q after it was installed again", first, again)
	}
}

// installedNode is the node of an installed tree.
type installedNode struct{ machine, unit, run string }

func (n installedNode) reeve(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(n.machine, "usr/bin/reeve"), arguments...)
	command.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + n.machine}
	return command
}

// setUp sets the machine up, as its operator does.
func (n installedNode) setUp(t *testing.T) {
	t.Helper()
	key := filepath.Join(n.machine, "owner.key")
	said := run(t, n.reeve(t.Context(), "init", "--owner-key", key, "--file", filepath.Join(n.machine, "etc/reeve/node.yaml"),
		"--state", filepath.Join(n.machine, "var/lib/reeve"), "--run", n.run, "--address", "127.0.0.1",
		"--curator-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"))
	if !strings.Contains(said, filepath.Join(n.machine, "usr/lib/reeve/reeved")+" --parameters") {
		t.Errorf("init does not say how to start the node: %s", said)
	}
	// What is left of the machine is to be its data alone.
	if err := os.Rename(key, filepath.Join(n.machine, "etc/reeve/owner.key")); err != nil {
		t.Fatal(err)
	}
}

// runOnce runs the node as the service does until it is up, stops it, and returns its ID.
func (n installedNode) runOnce(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parameters := filepath.Join(n.machine, "etc/reeve/node.yaml")
	core := exec.Command(self, filepath.Join(n.machine, "usr/sbin/reeved"), "--parameters", parameters)
	core.Env = []string{confinedVariable + "=" + n.unit}
	core.Dir = "/"
	core.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log strings.Builder
	core.Stderr = &log
	// A role that outlives the core would keep it open.
	core.WaitDelay = 5 * time.Second
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- core.Wait() }()
	nodeID := ""
	defer func() {
		_ = core.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("reeved: %v", err)
			}
		case <-time.After(upTimeout):
			t.Error("reeved does not stop: it is killed")
			_ = core.Process.Kill()
			t.Log(<-ended)
			run(t, exec.Command(filepath.Join(n.machine, "usr/sbin/reeved"), "reap", "--parameters", parameters))
		}
		if t.Failed() {
			t.Logf("the log of reeved:\n%s", log.String())
		}
		n.nothingRuns(t)
	}()
	if seen, ok := eventually.Try(t.Context(), upTimeout, 100*time.Millisecond, func() (bool, string) {
		var up bool
		var seen string
		nodeID, up, seen = n.status(t.Context())
		return up || len(ended) > 0, seen
	}); !ok || len(ended) > 0 {
		t.Errorf("the node is not up within %s; last seen: %s", upTimeout, seen)
	}
	return nodeID
}

// status asks the node by its socket.
func (n installedNode) status(ctx context.Context) (nodeID string, up bool, seen string) {
	document, err := n.reeve(ctx, "--socket", filepath.Join(n.run, "node.sock"), "status", "-o", "json").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", false, string(exit.Stderr)
	}
	var status struct {
		Node       struct{ ID string }
		Membership struct{ State string }
		Roles      []struct{ Role, State, Reason string }
	}
	if err == nil {
		err = json.Unmarshal(document, &status)
	}
	if err != nil {
		return "", false, err.Error()
	}
	ready := 0
	for _, role := range status.Roles {
		if role.State == "Ready" {
			ready++
		}
	}
	return status.Node.ID, status.Membership.State == "Home" && ready == 2, fmt.Sprintf("%+v", status)
}

// nothingRuns fails the test if a process of the node is left.
func (n installedNode) nothingRuns(t *testing.T) {
	t.Helper()
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		if strings.HasPrefix(process.Executable, n.machine+"/") && !process.Ended() {
			t.Errorf("left: %s", process)
		}
	}
}
