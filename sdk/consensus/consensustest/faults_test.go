package consensustest_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// patience only bounds a test that fails.
const patience = 5 * time.Minute

// The test's binary is the plugin that the tests launch, if this environment variable is set.
const asPlugin = "REEVE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		role.Serve(role.Plugin{Name: "gardener", Version: "0.1.0", Roles: []role.Role{
			{Name: "gardener", ConsensusUser: "gardener", Run: garden},
			{Name: "evergreen", ConsensusUser: "evergreen", InSplit: role.Continue, Run: garden},
		}})
	}
	leaktest.VerifyTestMain(m)
}

// garden waters every 10 ms, and is Ready while it can.
func garden(ctx context.Context, host *role.Host) error {
	store, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if _, err := store.Put(call, "watered", time.Now().String()); err != nil {
			host.Degraded("no water: " + err.Error())
		} else {
			host.Ready()
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func launch(t *testing.T) *roletest.Process {
	t.Helper()
	return roletest.LaunchTest(t, asPlugin+"=1")
}

// What an author writes to test a role that uses the store.
func TestStoreIsLost(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t)
	host.OpenStore(consensustest.NewStore(t).Socket(), "gardener")
	if err := process.Start(host, "gardener", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	host.LoseStore()
	process.AwaitDegraded()
	host.FindStore()
	process.AwaitReady()
}

func TestStoreStops(t *testing.T) {
	host, process, store := roletest.NewHost(t), launch(t), consensustest.NewStore(t)
	host.OpenStore(store.Socket(), "gardener")
	if err := process.Start(host, "gardener", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	store.Stop()
	process.AwaitDegraded()
	store.Start()
	process.AwaitReady()
	if found, err := store.Client(t, "gardener").Get(t.Context(), "watered"); err != nil || len(found.Kvs) != 1 {
		t.Errorf("what the role wrote is not there: %v, %v", found, err)
	}
}

// A role that is started before the store waits for it, and one that has lost its grant is told.
func TestStoreIsRevoked(t *testing.T) {
	host, process, store := roletest.NewHost(t), launch(t), consensustest.NewStore(t)
	host.OpenStore(store.Socket(), "gardener")
	host.LoseStore()
	if err := process.Start(host, "gardener", ""); err != nil {
		t.Fatal(err)
	}
	host.FindStore()
	process.AwaitReady()
	host.RevokeStore()
	process.AwaitDegraded()
	other := host.Instance(t, "other")
	if _, err := consensus.Dial(t.Context(), other); !errors.Is(err, consensus.ErrNotGranted) {
		t.Errorf("got: %v", err)
	}
	host.FindStore() // which is not what was done to it
	if _, err := consensus.Dial(t.Context(), other); !errors.Is(err, consensus.ErrNotGranted) {
		t.Errorf("got: %v", err)
	}
	host.OpenStore(store.Socket(), "gardener")
	process.AwaitReady()
}

// In Split the store is taken from a role that does not continue then, and comes back.
func TestSplit(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t)
	host.OpenStore(consensustest.NewStore(t).Socket(), "gardener")
	if err := process.Start(host, "gardener", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	host.Split()
	process.AwaitDegraded()
	if _, err := consensus.Dial(t.Context(), host.Instance(t, "other")); !errors.Is(err, consensus.ErrNotMember) {
		t.Errorf("got: %v", err)
	}
	host.Rejoin()
	process.AwaitReady()
}

func TestContinuesInSplit(t *testing.T) {
	host, process, store := roletest.NewHost(t), launch(t), consensustest.NewStore(t)
	host.OpenStore(store.Socket(), "evergreen")
	if err := process.Start(host, "evergreen", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	host.Split()
	if now, _ := host.Membership.Get(); now.GetState() != hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT {
		t.Errorf("the membership is %v", now)
	}
	// It goes on watering: on the connection that it had.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := store.Client(t, "evergreen")
	found, err := client.Get(ctx, "watered")
	if err != nil {
		t.Fatal(err)
	}
	if change, open := <-client.Watch(ctx, "watered"); !open || change.Header.Revision <= found.Header.Revision {
		t.Errorf("nobody waters: %v", change)
	}
	process.AwaitReady() // a slow Put makes it Degraded for a moment
}

// A core that is started again adopts the role, which goes on in its process, and hears what comes after.
func TestCoreRestarts(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t)
	host.OpenStore(consensustest.NewStore(t).Socket(), "gardener")
	if err := process.Start(host, "gardener", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	for range 3 {
		pid := process.PID()
		process.RestartCore()
		process.AwaitReady()
		host.LoseStore()
		process.AwaitDegraded()
		host.FindStore()
		process.AwaitReady()
		if process.PID() != pid {
			t.Error("it is another process")
		}
	}
	if err := process.Stop(patience); err != nil {
		t.Error(err)
	}
	process.AwaitStopped()
	if code := process.Exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// What the cluster's directory has of a role stays while its node's core is away.
func TestDirectoryWhileCoreRestarts(t *testing.T) {
	cluster, process := roletest.NewCluster(t, 2), launch(t)
	cluster.Host(0).OpenStore(consensustest.NewStore(t).Socket(), "gardener")
	if err := process.Start(cluster.Host(0), "gardener", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	running := func(now *hostv1.Directory) bool { return len(now.GetNodes()[0].GetRoles()) == 1 }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	directory := cluster.Host(1).Instance(t, "watcher").Directory()
	if _, err := directory.Wait(ctx, running); err != nil {
		t.Fatal(err)
	}
	process.RestartCore()
	if now, _ := directory.Get(); !running(now) {
		t.Errorf("the role is not in the directory after the restart of its core: %v", now)
	}
	process.Signal(syscall.SIGKILL)
	process.Exit()
	if _, err := directory.Wait(ctx, func(now *hostv1.Directory) bool { return !running(now) }); err != nil {
		t.Error("the end of the process does not come into the directory")
	}
}
