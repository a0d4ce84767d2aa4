package door_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

const (
	stateOpen    = consensusv1.AccessState_ACCESS_STATE_OPEN
	stateWaiting = consensusv1.AccessState_ACCESS_STATE_WAITING
	stateFailed  = consensusv1.AccessState_ACCESS_STATE_FAILED
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSetsAreOrdered(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	for _, c := range []struct {
		coreStart int64
		number    uint64
		with      bool
		stale     bool
	}{
		{coreStart: 100, number: 5, with: true},
		{coreStart: 100, number: 4, stale: true},
		{coreStart: 99, number: 9, stale: true},
		{coreStart: 100, number: 5, with: true}, // again
		{coreStart: 100, number: 6},
		{coreStart: 100, number: 5, with: true, stale: true},
		{coreStart: 101, number: 1, with: true}, // a new core counts from the beginning
		{coreStart: 100, number: 7, stale: true},
	} {
		set := &consensusv1.SetAccessRequest{CoreStart: c.coreStart, Number: c.number}
		if c.with {
			set.Instances = append(set.Instances, instance)
		}
		before, _ := n.door.State().Get()
		err := n.door.Set(set)
		if errors.Is(err, door.ErrStale) != c.stale || !c.stale && err != nil {
			t.Fatalf("set %d of core %d: %v, stale: want %v", c.number, c.coreStart, err, c.stale)
		}
		after, _ := n.door.State().Get()
		if c.stale {
			if after.Number != before.Number || after.CoreStart != before.CoreStart {
				t.Errorf("the refused set %d of core %d was published", c.number, c.coreStart)
			}
			continue
		}
		if after.CoreStart != c.coreStart || after.Number != c.number || len(after.Access) != len(set.Instances) {
			t.Errorf("after set %d of core %d the state is %+v", c.number, c.coreStart, after)
		}
		if c.with {
			n.await(t, instance, stateOpen)
		}
		if exists(instance.Socket) != c.with {
			t.Errorf("after set %d of core %d: socket there is %v, want %v", c.number, c.coreStart, !c.with, c.with)
		}
	}
}

func TestSetsThatAreNotValidChangeNothing(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	twin := n.instance(t, "ant.2", "ant")
	twin.Socket = instance.Socket
	for name, instances := range map[string][]*consensusv1.AccessInstance{
		"no ID":           {{ConsensusUser: "ant", Socket: "/s"}},
		"twice":           {instance, instance},
		"a shared socket": {instance, twin},
		"nil":             {nil},
	} {
		err := n.door.Set(&consensusv1.SetAccessRequest{CoreStart: 1, Number: 99, Instances: instances})
		if !errors.Is(err, door.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	n.await(t, instance, stateOpen)
	if state, _ := n.door.State().Get(); state.Number != n.number {
		t.Errorf("number %d was taken from a set that is not valid", state.Number)
	}
}

func TestInstancesThatCannotBeServed(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	good := n.instance(t, "ant.1", "ant")
	blocked := n.instance(t, "ant.2", "ant")
	if err := os.WriteFile(blocked.Socket, []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	homeless := n.instance(t, "ant.3", "ant")
	if err := os.Remove(filepath.Dir(homeless.Socket)); err != nil {
		t.Fatal(err)
	}
	long := n.instance(t, "ant.4", "ant")
	long.Socket += strings.Repeat("x", 108)
	root := n.instance(t, "ant.5", "root")
	relative := n.instance(t, "ant.6", "ant")
	relative.Socket = "consensus.sock"
	absent := n.instance(t, "bee.1", "bee")

	n.set(t, good, blocked, homeless, long, root, relative, absent)
	n.await(t, good, stateOpen)
	for _, c := range []struct {
		instance *consensusv1.AccessInstance
		state    consensusv1.AccessState
		reason   string
	}{
		{blocked, stateFailed, "in the way"},
		{homeless, stateFailed, "no such file or directory"},
		{long, stateFailed, "107"},
		{root, stateFailed, `"root" cannot be a ConsensusUser`},
		{relative, stateFailed, "absolute"},
		{absent, stateWaiting, "bee"},
	} {
		if reason := n.await(t, c.instance, c.state); !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %q, want that it says %q", c.instance.InstanceId, reason, c.reason)
		}
	}

	// What was in the way goes away without a new set, and so does what was waited for.
	if err := os.Remove(blocked.Socket); err != nil {
		t.Fatal(err)
	}
	n.await(t, blocked, stateOpen)
	n.ensure(t, "bee")
	n.await(t, absent, stateOpen)
}

func TestStaleSocketIsReplaced(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	leaveSocket(t, instance.Socket)
	n.open(t, instance)
	if _, err := storetest.Dial(t, instance.Socket).Put(storetest.Context(t), ownKey, "v"); err != nil {
		t.Error(err)
	}
}

// TestUnchangedInstancesKeepTheirConnections sends sets in which one instance stays as it is.
func TestUnchangedInstancesKeepTheirConnections(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant", "bee")
	stays, goes := n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee")
	n.open(t, stays)
	ended := watch(t, stays.Socket, ownPrefix)
	for range 3 {
		n.open(t, goes, stays)
		n.open(t, stays)
	}
	if _, err := storetest.Dial(t, stays.Socket).Put(storetest.Context(t), ownKey, "v"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Error("the watch of an instance that did not change has ended")
	default:
	}
}

// TestChangedPermissionsFailNobody makes and removes users while another writes: etcd would refuse some of its calls for being of an older revision
// of the permissions.
func TestChangedPermissionsFailNobody(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	kv := pb.NewKVClient(rawConnection(t, instance.Socket)) // etcd's own client would try again by itself, after a pause
	ctx, cancel := context.WithCancel(storetest.Context(t))
	defer cancel()
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			for ctx.Err() == nil {
				if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte(ownKey)}); err != nil && ctx.Err() == nil {
					return err
				}
				if _, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte(ownKey)}); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	for range 20 {
		n.ensure(t, "bee")
		if err := n.store.RemoveUser(ctx, "bee"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Errorf("a call failed while another's permissions changed: %v", err)
	}
}

// TestClientWorksAgain restarts the store under a client, as when the role's process is killed and started again.
func TestClientWorksAgain(t *testing.T) {
	directory := storetest.Directory(t)
	n := start(t, directory)
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	client := storetest.Dial(t, instance.Socket)
	ctx := storetest.Context(t)
	if _, err := client.Put(ctx, ownKey, "1"); err != nil {
		t.Fatal(err)
	}
	changes := client.Watch(ctx, ownPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-changes; !created.Created {
		t.Fatalf("no watch: %+v", created)
	}
	n.stop()
	if exists(instance.Socket) {
		t.Error("the socket outlived the door")
	}
	if _, err := client.Put(brief(t), ownKey, "2"); err == nil {
		t.Fatal("a put was acknowledged while there was no store")
	}

	again := start(t, directory)
	again.open(t, instance)
	if _, err := client.Put(ctx, ownKey, "3"); err != nil {
		t.Fatalf("the same client, after the restart: %v", err)
	}
	for {
		change, ok := <-changes
		if !ok || change.Err() != nil {
			t.Fatalf("the watch did not go on: %v", change.Err())
		}
		if n := len(change.Events); n > 0 && string(change.Events[n-1].Kv.Value) == "3" {
			return
		}
	}
}

// TestOpeningsLeaveNothing opens and closes many times, with connections, watches and calls.
func TestOpeningsLeaveNothing(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant", "bee")
	instances := []*consensusv1.AccessInstance{n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee")}
	keys := []string{ownKey, foreignKey}
	ctx := storetest.Context(t)
	cycle := func() {
		n.open(t, instances...)
		for i, instance := range instances {
			connection, err := grpc.NewClient("unix:"+instance.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pb.NewKVClient(connection).Put(ctx, &pb.PutRequest{Key: []byte(keys[i]), Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
			if stream, err := pb.NewWatchClient(connection).Watch(ctx); err != nil {
				t.Error(err)
			} else if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(keys[i])}}}); err != nil {
				t.Error(err)
			}
			defer connection.Close()
		}
		n.set(t) // with the connections open
	}
	for range 10 {
		cycle()
	}
	goroutines, descriptors := runtime.NumGoroutine(), descriptorsOf(t)
	const cycles = 100
	for range cycles {
		cycle()
	}
	const slack = 10 // etcd's own, which come and go
	storetest.Eventually(t, "as many goroutines and descriptors as before", func() bool {
		return runtime.NumGoroutine() <= goroutines+slack && descriptorsOf(t) <= descriptors+slack/2
	})
	t.Logf("%d goroutines and %d descriptors before, %d and %d after %d openings",
		goroutines, descriptors, runtime.NumGoroutine(), descriptorsOf(t), cycles*len(instances))
}

func descriptorsOf(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("the descriptors of this process cannot be counted: %v", err)
	}
	return len(entries)
}
