package plugin_test

import (
	gocontext "context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func TestInstanceLives(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{Do: "ready", Write: "kept"})
	status := waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	remit, process := instance.Remit(), instance.Process()
	if want := strconv.Itoa(process.PID); status.GetValues()["pid"] != want {
		t.Errorf("the role has pid %s, the instance says %s", status.GetValues()["pid"], want)
	}
	if remit.Name != "one.1" || !strings.HasSuffix(remit.InstanceID, "/one/1") || remit.Grants.GetConsensusUser() != "one" {
		t.Errorf("remit %+v", remit)
	}
	if remit.SharedUID == (os.Geteuid() == 0) || remit.SharedUID && remit.UID != uint32(os.Geteuid()) {
		t.Errorf("user %d, shared %v", remit.UID, remit.SharedUID)
	}
	if known, ok := remit.Process(); !ok || known != process {
		t.Errorf("the remit's process is %v (%v), want %v", known, ok, process)
	}
	if group, err := syscall.Getpgid(process.PID); err != nil || group != process.PID {
		t.Errorf("process group %d (%v), want %d", group, err, process.PID)
	}
	proc, err := os.ReadFile("/proc/" + strconv.Itoa(process.PID) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	if uid := fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", remit.UID); !strings.Contains(string(proc), uid) {
		t.Errorf("the role is not user %d:\n%s", remit.UID, proc)
	}
	if os.Geteuid() == 0 && !strings.Contains(string(proc), "Groups:\t \n") {
		t.Errorf("the role has further groups:\n%s", proc)
	}
	if records := node.entries(t, "run", "instances"); !slices.Equal(records, []string{"one.1.err", "one.1.json", "one.1.log", "one.1.out"}) {
		t.Errorf("records %v", records)
	}
	info, err := os.Stat(filepath.Join(node.dir, "data", "roles", "one", "written"))
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != remit.UID {
		t.Errorf("the role's file belongs to %d, not %d", stat.Uid, remit.UID)
	}

	if err := instance.Stop(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if exit := instance.Exit(); exit.Code != 0 || exit.Signal != 0 || !exit.Requested {
		t.Errorf("exit %+v", exit)
	}
	node.nothingLeft(t)
	if again := node.launch(t, plugintest.Configuration{Do: "ready"}); again.Remit().Name != "one.2" {
		t.Errorf("the next instance is %s", again.Remit().Name)
	}
}

func TestEnvironmentIsClean(t *testing.T) {
	t.Setenv("SECRET_OF_THE_CORE", "42")
	node := newNode(t)
	node.launch(t, plugintest.Configuration{Do: "ready", Environment: true})
	_, line, _ := strings.Cut(node.roleLog(t, "one", "environment "), "environment ")
	line, _, _ = strings.Cut(line, "\n")
	var names []string
	for _, variable := range strings.Fields(line) {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		"GOTRACEBACK", "PLUGIN_MAX_PORT", "PLUGIN_MIN_PORT", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_UNIX_SOCKET_DIR", "REEVE_INSTANCE", "REEVE_PLUGIN",
		"SPIFFE_ENDPOINT_SOCKET",
	}
	if !slices.Equal(names, want) {
		t.Errorf("environment %v, want %v", names, want)
	}
}

// What a role writes is in its log as it is. The core's own log has the last lines of an instance that failed, in a form that is nobody else's.
func TestLog(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	lines := []string{
		"said before", `{"@message": 5}`, `{"@level":"error","@message":"it broke","error":"rust","role":"curator","instance":"x"}`,
		"plain \x1b[31m text", strings.Repeat("long ", 2000), "after the long line",
	}
	instance := node.launch(t, plugintest.Configuration{Do: "ready", Log: lines})
	if log := node.roleLog(t, "one", "after the long line\n"); !strings.Contains(log, strings.Join(lines, "\n")) {
		t.Errorf("the log has %d bytes", len(log))
	}
	if len(node.log.ofRole()) > 0 {
		t.Error("the core's log has lines of a role that works")
	}
	if err := syscall.Kill(instance.Process().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-instance.Done()
	told := node.log.ofRole()
	for n, want := range []string{"said before", `{"@message": 5}`, "it broke: rust", `plain \x1b[31m text`, "long ", "after the long line"} {
		at := len(told) - 6 + n
		if at < 0 || !strings.HasPrefix(told[at].message, want) || len(told[at].message) > 600 || told[at].fields["role"] != "one" ||
			told[at].fields["instance"] != instance.Remit().InstanceID || len(told[at].fields) != 2 {
			t.Errorf("%q is not among the last lines: %+v", want, told)
		}
	}
	file, err := os.Stat(filepath.Join(node.dir, "data", "logs", "one.log"))
	if err != nil || file.Mode().Perm() != 0o600 || file.Size() < 10_000 {
		t.Errorf("log file %v, %v", file, err)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	for name, test := range inorder.Of(map[string]struct {
		configuration plugintest.Configuration
		state         rolev1.RoleState
		code          int
		says          string
	}{
		"fails":   {plugintest.Configuration{Do: "fail", Signalled: true}, rolev1.RoleState_ROLE_STATE_FAILED, 1, "no strength left"},
		"returns": {plugintest.Configuration{Do: "return", Signalled: true}, rolev1.RoleState_ROLE_STATE_FAILED, 1, ""},
		"exits":   {plugintest.Configuration{Do: "exit", Signalled: true, Log: []string{"so long"}}, 0, 3, "exited with status 3: so long"},
	}) {
		t.Run(name, func(t *testing.T) {
			instance := node.launch(t, test.configuration)
			waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
			if err := syscall.Kill(instance.Process().PID, syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			select {
			case <-instance.Done():
			case <-time.After(patience):
				t.Fatal("it did not end")
			}
			exit := instance.Exit()
			if exit.Code != test.code || exit.Requested {
				t.Errorf("exit %+v", exit)
			}
			status, _ := instance.Status().Get()
			if test.state != 0 && status.GetState() != test.state {
				t.Errorf("last state %s", status.GetState())
			}
			if said := exit.String() + status.GetReason(); !strings.Contains(said, test.says) {
				t.Errorf("it says %q, want %q", said, test.says)
			}
			node.nothingLeft(t)
		})
	}
}

func TestKilledIsSeen(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{Do: "ready", Children: []string{"group", "session", "nameless"}})
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	if n := len(node.processes(t)); n != 4 {
		t.Fatalf("%d processes run: the test does not test what it should", n)
	}
	if err := syscall.Kill(instance.Process().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-instance.Done()
	if exit := instance.Exit(); exit.Signal != syscall.SIGKILL || exit.Code != -1 {
		t.Errorf("exit %+v", exit)
	}
	node.nothingLeft(t)
}

func TestStopKillsWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{Do: "stubborn", Children: []string{"group", "session", "nameless"}})
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	ctx, cancel := gocontext.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := instance.Stop(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if exit := instance.Exit(); exit.Signal != syscall.SIGKILL {
		t.Errorf("exit %+v", exit)
	}
	node.nothingLeft(t)
}

func TestDegradedSaysWhy(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{Do: "degraded"})
	if status := waitState(t, instance, rolev1.RoleState_ROLE_STATE_DEGRADED); status.GetReason() != `the sky is\ngrey` {
		t.Errorf("reason %q", status.GetReason())
	}
}

// A core tells its roles that it knows what Blocked is.
func TestBlockedSaysWhy(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{Do: "blocked"})
	if status := waitState(t, instance, rolev1.RoleState_ROLE_STATE_BLOCKED); status.GetReason() != `there is no\nlamp` {
		t.Errorf("reason %q", status.GetReason())
	}
	if err := instance.CheckHealth(t.Context()); err != nil {
		t.Errorf("it is not well: %v", err)
	}
}

// slow launches a role that does something, and says that it takes so many seconds to stop.
func slow(t *testing.T, node *testNode, do string, seconds int) *plugin.Instance {
	t.Helper()
	variant := plugintest.Variant{Name: "slow", Roles: []plugintest.Role{{Name: "one", StopSeconds: seconds}}}
	s := spec(node.add(t, variant), variant, plugintest.Configuration{Do: do})
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	return instance
}

// A role has no more time to stop than its manifest says, if nobody says how long it is to have.
func TestStopGraceIsKept(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := slow(t, node, "stubborn", 1)
	if err := instance.Stop(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if now, _ := instance.Status().Get(); !strings.Contains(now.GetReason(), "grace period of 1s") {
		t.Errorf("it ended with %v", now)
	}
	node.nothingLeft(t)
}

func TestPrintingDoesNotBlock(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{Do: "ready", Stdout: 512})
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
}

func TestConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	s := spec(node.add(t, everything), everything, plugintest.Configuration{})
	s.Configuration = `{"do": 5, "colour": "red"}`
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if process, known := remit.Process(); known {
		t.Errorf("its process is %v before there is one", process)
	}
	_, err = node.launcher.Launch(t.Context(), remit, s, "/nowhere")
	if _, known := remit.Process(); !known {
		t.Error("its role was started before its process was known")
	}
	var refused *plugin.ConfigurationError
	if !errors.As(err, &refused) || len(refused.Problems) != 2 || refused.Role != "one" {
		t.Fatalf("error %v", err)
	}
	if !slices.ContainsFunc(refused.Problems, func(p plugin.ConfigurationProblem) bool { return p.Path == "/colour" }) {
		t.Errorf("problems %v", refused.Problems)
	}
	node.nothingLeft(t)
}

func TestLaunchIsCancelled(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	variant := everything
	variant.Before = "silent"
	s := spec(node.add(t, variant), variant, plugintest.Configuration{})
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := gocontext.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := node.launcher.Launch(ctx, remit, s, "/nowhere"); !errors.Is(err, gocontext.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	digest := node.add(t, everything)
	var unknown *plugin.UnknownRoleError
	s := spec(digest, everything, plugintest.Configuration{})
	s.Role = "three"
	if _, err := node.launcher.Prepare(t.Context(), s); !errors.As(err, &unknown) || unknown.Role != "three" {
		t.Errorf("error %v", err)
	}
	var missing *store.MissingError
	s = spec("sha256:"+strings.Repeat("0", 64), everything, plugintest.Configuration{})
	if _, err := node.launcher.Prepare(t.Context(), s); !errors.As(err, &missing) || missing.Plugin != "everything" {
		t.Errorf("error %v", err)
	}
	s.Plugin.Digests = nil
	if _, err := node.launcher.Prepare(t.Context(), s); !errors.As(err, &missing) || missing.Digest != "" {
		t.Errorf("error %v", err)
	}
	remit, err := node.launcher.Prepare(t.Context(), spec(digest, everything, plugintest.Configuration{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := node.launcher.Discard(remit); err != nil {
		t.Fatal(err)
	}
	node.nothingLeft(t)
}
