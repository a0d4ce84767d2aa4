package roles_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// noHosts serves nothing: the test plugin calls nothing.
type noHosts struct{}

func (noHosts) Open(*plugin.Remit) (string, func(), error) { return "/nowhere", func() {}, nil }

// realNode is a reconciler over real processes.
type realNode struct {
	*roles.Reconciler
	dir     string
	desired *event.Value[roles.Desired]
	store   *store.Store
	// launcher is what the reconciler launches with.
	launcher *plugin.Launcher
	stopFor  func(cause error) error
}

func newRealNode(t *testing.T, settings ...func(*roles.Config)) *realNode {
	t.Helper()
	dir := plugintest.Dir(t)
	for _, name := range []string{"data", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	n, err := openRealNode(dir, testLog(t), settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// openRealNode runs what is in a directory, as a core that starts does.
func openRealNode(dir string, log hclog.Logger, settings ...func(*roles.Config)) (*realNode, error) {
	data := filepath.Join(dir, "data")
	store, err := store.Open(filepath.Join(data, "plugins"))
	if err != nil {
		return nil, err
	}
	users, err := users.Reserve("/var/lib/reeve/uid-ranges", filepath.Join(data, "uids.json"), data, nil)
	if err != nil {
		return nil, err
	}
	// The next core of the same test, which is in the same process, takes it.
	if err := users.Close(); err != nil {
		return nil, err
	}
	launcher, err := plugin.NewLauncher(plugin.Config{
		Log: log, Store: store, Users: users,
		RunDir: filepath.Join(dir, "run"), DataDir: data, NodeID: "reeve-" + filepath.Base(dir), CoreStart: time.Now(),
	})
	if err != nil {
		return nil, err
	}
	n := &realNode{dir: dir, desired: new(event.Value[roles.Desired]), store: store, launcher: launcher}
	config := quiet(roles.Config{
		Log: log, Launcher: roles.FromPlugin(launcher), Hosts: noHosts{}, Desired: n.desired, FailuresDir: filepath.Join(data, "failures"), BootID: "boot",
	})
	for _, set := range settings {
		set(&config)
	}
	n.Reconciler = roles.New(config)
	ctx, cancel := context.WithCancelCause(context.Background())
	result := make(chan error, 1)
	go func() { result <- n.Run(ctx) }()
	stopped := false
	n.stopFor = func(cause error) error {
		if stopped {
			return nil
		}
		stopped = true
		cancel(cause)
		return <-result
	}
	return n, nil
}

func (n *realNode) stop() error { return n.stopFor(nil) }

// add stores a plugin and returns its catalog record.
func (n *realNode) add(t *testing.T, variant plugintest.Variant) *clusterv1.PluginRecord {
	t.Helper()
	digest, err := n.store.Import(t.Context(), executable(t).Reader(t, variant))
	if err != nil {
		t.Fatal(err)
	}
	return plugintest.Record(digest, variant)
}

func (n *realNode) desire(record *clusterv1.PluginRecord, generation uint64, what plugintest.Configuration, names ...string) {
	var desired roles.Desired
	for _, name := range names {
		desired.Roles = append(desired.Roles, roles.DesiredRole{
			Assignment: &clusterv1.RoleAssignment{Role: name, Configuration: what.String(), Generation: generation},
			Plugin:     record,
		})
	}
	n.desired.Set(desired)
}

// wait returns the state of a role once it is as accept wants.
func (n *realNode) wait(t *testing.T, name string, accept func(*clusterv1.InstanceStatus) bool) *clusterv1.InstanceStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var found *clusterv1.InstanceStatus
	_, err := n.Instances().Wait(ctx, func(now roles.Instances) bool {
		found = nil
		for _, instance := range now {
			if instance.Status.GetRole() == name {
				found = instance.Status
			}
		}
		return accept(found)
	})
	if err != nil {
		t.Fatalf("role %s is %v: %v", name, found, err)
	}
	return found
}

func in(state hostv1.InstanceState) func(*clusterv1.InstanceStatus) bool {
	return func(s *clusterv1.InstanceStatus) bool { return s.GetState() == state }
}

var pair = plugintest.Variant{Name: "pair", Roles: []plugintest.Role{
	{Name: "store", Provides: []string{"test.store.v1"}},
	{Name: "app", Requires: []string{"test.store.v1"}},
}}

func TestRealRolesComeBack(t *testing.T) {
	t.Parallel()
	n := newRealNode(t)
	record := n.add(t, pair)
	n.desire(record, 1, plugintest.Configuration{Do: "ready"}, "app", "store")
	app, store := n.wait(t, "app", in(ready)), n.wait(t, "store", in(ready))
	if store.GetRestarts() != 0 || app.GetRestarts() != 0 {
		t.Errorf("not at the first go: %v, %v", store, app)
	}
	if len(store.GetEndpoints()) != 1 || store.GetDigest() == "" || store.GetPid() == 0 {
		t.Errorf("status %v", store)
	}
	// Its services are called on its own connection.
	now, _ := n.Capabilities().Get()
	described, err := rolev1.NewRoleServiceClient(now["test.store.v1"].Conn).Describe(t.Context(), &rolev1.DescribeRequest{})
	if err != nil || described.GetManifest().GetName() != "pair" {
		t.Errorf("manifest %v, %v", described, err)
	}
	if err := syscall.Kill(int(store.GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetPid() != store.GetPid() })
	if again.GetRestarts() != 1 || again.GetInstanceId() == store.GetInstanceId() {
		t.Errorf("status %v", again)
	}
	if still := n.wait(t, "app", in(ready)); still.GetPid() != app.GetPid() {
		t.Error("the other role was restarted too")
	}
	n.desire(record, 2, plugintest.Configuration{Do: "degraded"}, "store")
	n.wait(t, "app", func(s *clusterv1.InstanceStatus) bool { return s == nil })
	n.wait(t, "store", in(degraded))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"instances", "plugin"} {
		if left, err := os.ReadDir(filepath.Join(n.dir, "run", part)); err != nil || len(left) > 0 {
			t.Errorf("run/%s: %v, %v", part, left, err)
		}
	}
}

func TestRealFailures(t *testing.T) {
	t.Parallel()
	n := newRealNode(t)
	record := n.add(t, pair)
	n.desire(record, 1, plugintest.Configuration{Do: "panic"}, "store")
	fallen := n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == backoff && s.GetRestarts() > 0 })
	if fallen.GetReason() == "" || fallen.GetPid() != 0 || fallen.GetNextTry() == nil {
		t.Errorf("status %v", fallen)
	}
	t.Log(fallen.GetReason())
	n.desire(record, 2, plugintest.Configuration{Do: "ready"}, "store")
	n.wait(t, "store", in(ready))

	n.desired.Set(roles.Desired{Roles: []roles.DesiredRole{{
		Assignment: &clusterv1.RoleAssignment{Role: "store", Configuration: `{"colour":"red"}`, Generation: 3}, Plugin: record,
	}}})
	refused := n.wait(t, "store", in(failed))
	if !strings.HasPrefix(refused.GetReason(), "refuses its configuration: /colour: ") {
		t.Errorf("reason %q", refused.GetReason())
	}

	broken := pair
	broken.Before = "exit"
	n.desire(n.add(t, broken), 4, plugintest.Configuration{}, "store")
	exited := n.wait(t, "store", in(backoff))
	if want := "the launch failed: it ended before it was started: exited with status 7; it last wrote: cannot find my own feet"; exited.GetReason() != want {
		t.Errorf("reason %q", exited.GetReason())
	}
}

// The executable of a role goes while the role runs: it runs on, and the next start says what is missing and what to do, until it is there again.
func TestRealExecutableIsGone(t *testing.T) {
	t.Parallel()
	n := newRealNode(t)
	record := n.add(t, pair)
	digest := record.GetDigests()[store.Platform]
	n.desire(record, 1, plugintest.Configuration{Do: "ready"}, "store")
	first := n.wait(t, "store", in(ready))
	if err := os.Remove(filepath.Join(n.dir, "data", "plugins", strings.Replace(digest, ":", "-", 1))); err != nil {
		t.Fatal(err)
	}
	n.desire(record, 1, plugintest.Configuration{Do: "ready"}, "store", "app")
	refused := n.wait(t, "app", in(failed))
	if !strings.Contains(refused.GetReason(), "is not stored on this node; add the plugin again (reeve plugin add)") {
		t.Errorf("reason %q", refused.GetReason())
	}
	if now := n.wait(t, "store", in(ready)); now.GetPid() != first.GetPid() {
		t.Errorf("status %v", now)
	}
	if err := syscall.Kill(int(first.GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone := n.wait(t, "store", in(failed))
	if !strings.Contains(gone.GetReason(), "is not stored on this node") || gone.GetLastFailure().GetFailures() != 1 {
		t.Errorf("status %v", gone)
	}
	n.add(t, pair)
	for _, role := range []string{"store", "app"} {
		if _, err := n.Restart(t.Context(), role, false); err != nil {
			t.Fatal(err)
		}
	}
	n.wait(t, "store", in(ready))
	n.wait(t, "app", in(ready))
}

// testLog is what the room says, for a test that fails.
func testLog(t *testing.T) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: t.Output(), Level: hclog.Debug})
}
