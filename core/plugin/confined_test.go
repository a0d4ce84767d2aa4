package plugin_test

import (
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

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

func limit(name, value string) *rolev1.Grant {
	return &rolev1.Grant{Name: remit.Limit, Parameters: map[string]string{name: value}}
}

// launchGranted runs role "one" of a variant with grants.
func (n *testNode) launchGranted(t testing.TB, variant plugintest.Variant, c plugintest.Configuration, grants ...*rolev1.Grant) (*plugin.Instance, error) {
	t.Helper()
	s := spec(n.add(t, variant), variant, c)
	s.Plugin.Grants[0].Grants = grants
	r, err := n.launcher.Prepare(t.Context(), s)
	if err != nil {
		return nil, err
	}
	instance, err := n.launcher.Launch(t.Context(), r, s, filepath.Join(n.dir, "run", "host.sock"))
	if err == nil {
		t.Cleanup(func() {
			if err := instance.Stop(context(), time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	return instance, err
}

// needs skips a test where a part of the sandbox cannot be enforced.
func (n *testNode) needs(t *testing.T, part string) {
	t.Helper()
	for _, missing := range n.launcher.Missing(spec(n.add(t, everything), everything, plugintest.Configuration{})) {
		if missing.GetName() == part {
			t.Skipf("%s cannot be enforced here: %s", part, missing.GetReason())
		}
	}
}

func ended(t *testing.T, instance *plugin.Instance) plugin.Exit {
	t.Helper()
	select {
	case <-instance.Done():
	case <-time.After(patience):
		t.Fatal("it did not end")
	}
	return instance.Exit()
}

func TestOutOfMemoryIsToldFromAKill(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	node.needs(t, "cgroup-memory")
	var failed *plugin.LaunchError
	instance, err := node.launchGranted(t, everything, plugintest.Configuration{Do: "ready", Memory: 1 << 10}, limit(remit.LimitMemory, "64Mi"))
	for tries := 1; tries < 10 && errors.As(err, &failed) && failed.Exit != nil && failed.Exit.OutOfMemory; tries++ {
		// It began to work as soon as it had answered, and had ended before the answer was read.
		instance, err = node.launchGranted(t, everything, plugintest.Configuration{Do: "ready", Memory: 1 << 10}, limit(remit.LimitMemory, "64Mi"))
	}
	if err != nil {
		t.Fatal(err)
	}
	exit := ended(t, instance)
	if !exit.OutOfMemory || exit.Signal != syscall.SIGKILL || !strings.HasPrefix(exit.String(), "ran out of memory (its limit is 64 MiB)") {
		t.Errorf("exit %+v, %q", exit, exit)
	}
	if instance, err = node.launchGranted(t, everything, plugintest.Configuration{Do: "ready", Try: []string{"heap limit"}}, limit(remit.LimitMemory, "64Mi")); err != nil {
		t.Fatal(err)
	}
	// It was told of its bound, and collects its garbage below it.
	if values := waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY).GetValues(); values["heap-limit"] != fmt.Sprint(64<<20-64<<20/10) {
		t.Errorf("values %v", values)
	}
	if err := syscall.Kill(instance.Process().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, instance); exit.OutOfMemory || exit.String() != "ended by signal 9 (killed)" {
		t.Errorf("exit %+v, %q", exit, exit)
	}
	// One that does not come so far.
	greedy := everything
	greedy.Before = "greedy"
	_, err = node.launchGranted(t, greedy, plugintest.Configuration{}, limit(remit.LimitMemory, "64Mi"))
	if !errors.As(err, &failed) || failed.Exit == nil || !failed.Exit.OutOfMemory || !strings.Contains(err.Error(), "ran out of memory (its limit is 64 MiB)") {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
}

func TestForkBombIsBoundedAndSwept(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	node.needs(t, "cgroup-processes")
	instance, err := node.launchGranted(t, everything, plugintest.Configuration{Do: "ready", Forks: 1000}, limit(remit.LimitProcesses, "60"))
	if err != nil {
		t.Fatal(err)
	}
	status := waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	if forks, err := strconv.Atoi(status.GetValues()["forks"]); err != nil || forks == 0 || forks >= 60 {
		t.Errorf("%d forks, %v", forks, err)
	}
	if err := instance.Stop(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	node.nothingLeft(t)
}

func TestInvalidGrantsAreRefused(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	_, err := node.launchGranted(t, everything, plugintest.Configuration{Do: "ready"},
		limit(remit.LimitMemory, "64Mi"), granted("fly")[0], limit(remit.LimitMemory, "much"), granted(remit.Listen)[0])
	var refused *plugin.GrantError
	if !errors.As(err, &refused) || !slices.Equal(refused.Grants, []string{"fly", "limit", "listen"}) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"role one", `"fly"`, `"much"`, "grants[3]", "reeve plugin withdraw"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	node.nothingLeft(t)
}

// A privileged role is the core's user, and ending it ends nobody else who is.
func TestPrivileged(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	alive := bystander(t)
	instance, err := node.launchGranted(t, everything, plugintest.Configuration{Do: "ready", Children: []string{"group", "session", "nameless"}}, granted(remit.Privileged)...)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	r := instance.Remit()
	if r.UID != uint32(os.Geteuid()) || !r.SharedUID || r.Tier != clusterv1.Tier_TIER_PRIVILEGED || !r.Powers.Privileged {
		t.Errorf("remit %+v", r)
	}
	if described := instance.Sandbox(); described.GetTier() != clusterv1.Tier_TIER_PRIVILEGED {
		t.Errorf("sandbox %v", described)
	}
	if err := instance.Stop(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if !alive() {
		t.Error("somebody else was killed")
	}
	node.nothingLeft(t)
}

func TestSandboxIsDescribed(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	s := spec(node.add(t, everything), everything, plugintest.Configuration{Do: "ready"})
	s.Plugin.Grants[0].Grants = []*rolev1.Grant{limit(remit.LimitMemory, "64Mi"), {Name: remit.SetHostname}}
	would := node.launcher.SandboxOf(s)
	instance, err := node.launchGranted(t, everything, plugintest.Configuration{Do: "ready"}, s.Plugin.Grants[0].Grants...)
	if err != nil {
		t.Fatal(err)
	}
	does := instance.Sandbox()
	if would.GetTier() != clusterv1.Tier_TIER_GRANTED || does.GetTier() != would.GetTier() || instance.Remit().Tier != would.GetTier() {
		t.Errorf("it would run in %v, and runs in %v", would, does)
	}
	lacksGroups := slices.ContainsFunc(node.launcher.Missing(s), func(m *clusterv1.Missing) bool { return m.GetName() == "cgroup-memory" })
	if !lacksGroups && would.GetMemoryBytes() != 64<<20 || would.GetUid() != instance.Remit().UID {
		t.Errorf("it would run in %v", would)
	}
	if !lacksGroups && len(does.GetControlGroups()) == 0 {
		t.Error("it names no control groups")
	}
	for _, group := range does.GetControlGroups() {
		content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil || !slices.Contains(strings.Fields(string(content)), strconv.Itoa(instance.Process().PID)) {
			t.Errorf("%s holds %q, %v", group, content, err)
		}
	}
}

func TestStopTellsWhy(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	raw := everything
	raw.Before = "raw"
	instance, err := node.launchGranted(t, raw, plugintest.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	if err := instance.StopWith(t.Context(), patience, rolev1.StopReason_STOP_REASON_NODE); err != nil {
		t.Fatal(err)
	}
	if exit := instance.Exit(); !slices.Contains(exit.Lines, "stopped: STOP_REASON_NODE") {
		t.Errorf("exit %+v", exit)
	}
}

func TestDescribeRefusesWhatIsUnsteady(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	unsteady := everything
	unsteady.Before = "unsteady"
	_, err := node.launcher.Describe(t.Context(), node.add(t, unsteady))
	var not *plugin.NotAPluginError
	if !errors.As(err, &not) || !errors.Is(err, store.ErrUnsteady) || !strings.Contains(err.Error(), `roles[0].summary was "I am `) {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
}

// While it is asked for its manifest, a plugin reaches nothing.
func TestDescribeIsConfined(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	node.needs(t, "seccomp")
	node.needs(t, "landlock-files")
	nosy := everything
	nosy.Before, nosy.Path = "reach", filepath.Join(node.dir, "data", "secret")
	if err := os.WriteFile(nosy.Path, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := node.launcher.Describe(t.Context(), node.add(t, nosy)); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for line := range strings.Lines(node.roleLog(t, "_describe", "reached the end\n")) {
		if strings.HasPrefix(line, "reached") && line != "reached the end\n" {
			t.Error(line)
		}
		if strings.HasPrefix(line, "refused") {
			refused++
		}
	}
	if refused != 2*4 {
		t.Errorf("%d attempts were refused", refused)
	}
	if _, err := os.Stat(filepath.Join(node.dir, "data", "left")); err == nil {
		t.Error("a file was left")
	}
}
