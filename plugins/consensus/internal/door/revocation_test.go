package door_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// TestRevocation takes the access of one instance in every way there is, while others keep theirs.
func TestRevocation(t *testing.T) {
	for _, c := range []struct {
		name   string
		revoke func(t *testing.T, n *node, victim, bystander *consensusv1.AccessInstance)
	}{
		{"the instance leaves the set", func(t *testing.T, n *node, _, bystander *consensusv1.AccessInstance) {
			n.set(t, bystander)
		}},
		{"the instance becomes another user's", func(t *testing.T, n *node, victim, bystander *consensusv1.AccessInstance) {
			victim.Uid++
			n.set(t, victim, bystander)
		}},
		{"the user is removed", func(t *testing.T, n *node, _, _ *consensusv1.AccessInstance) {
			if err := n.store.RemoveUser(storetest.Context(t), "ant"); err != nil {
				t.Error(err)
			}
		}},
		{"the user is removed and made anew", func(t *testing.T, n *node, _, _ *consensusv1.AccessInstance) {
			if err := n.store.RemoveUser(storetest.Context(t), "ant"); err != nil {
				t.Error(err)
			}
			n.ensure(t, "ant")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := start(t, storetest.Directory(t))
			n.ensure(t, "ant", "bee")
			victim, bystander := n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee")
			n.open(t, victim, bystander)
			ended := watch(t, victim.Socket, ownPrefix)
			untouched := watch(t, bystander.Socket, foreignPrefix)
			c.revoke(t, n, victim, bystander)
			select {
			case <-ended:
			case <-time.After(storetest.Bound):
				t.Fatal("the watch goes on")
			}
			if _, err := storetest.Dial(t, bystander.Socket).Put(storetest.Context(t), foreignKey, "v"); err != nil {
				t.Errorf("the other instance: %v", err)
			}
			select {
			case <-untouched:
				t.Error("the watch of the other instance ended, too")
			default:
			}
		})
	}
}

// watch begins a watch on a connection of its own, outside of clientv3, which would hide its end, and returns a channel that is closed when it has ended.
func watch(t *testing.T, socket, prefix string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream := rawWatch(t, ctx, socket, prefix)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return done
}

// awaitGood waits for a status of a store with a quorum and the user ant: on a busy machine one look at it may come too late.
func awaitGood(t *testing.T, s *store.Store) store.Status {
	t.Helper()
	good, err := s.Status().Wait(storetest.Context(t), func(status store.Status) bool { return status.Quorum() && status.Users["ant"] != 0 })
	if err != nil {
		t.Fatal(err)
	}
	return good
}

// TestWhatTheStoreMustBe runs the door on a status of the test's own.
func TestWhatTheStoreMustBe(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	if err := s.EnsureUser(storetest.Context(t), "ant"); err != nil {
		t.Fatal(err)
	}
	good := awaitGood(t, s)
	status := event.New(good)
	const grace = 200 * time.Millisecond
	n := &node{directory: storetest.Directory(t), store: s, door: door.New(door.Config{Log: storetest.Log(t), QuorumGrace: grace})}
	bound, always := n.instance(t, "ant.1", "ant"), n.instance(t, "ant.2", "ant")
	always.WithoutQuorum = true

	n.set(t, bound, always)
	n.await(t, bound, stateWaiting) // not running yet
	stop := n.run(t, status)
	defer stop()
	n.await(t, bound, stateOpen)

	learner := good
	learner.Voter = false
	status.Set(learner)
	for _, instance := range []*consensusv1.AccessInstance{bound, always} {
		if reason := n.await(t, instance, stateWaiting); !strings.Contains(reason, "voter") {
			t.Errorf("%q", reason)
		}
		if exists(instance.Socket) {
			t.Error("a learner serves a socket")
		}
	}
	status.Set(good)
	n.await(t, bound, stateOpen)

	lost := good
	lost.NoQuorum = time.Now()
	status.Set(lost)
	if reason := n.await(t, bound, stateWaiting); !strings.Contains(reason, "quorum") {
		t.Errorf("%q", reason)
	}
	if since := time.Since(lost.NoQuorum); since < grace {
		t.Errorf("closed after %s, within the grace of %s", since, grace)
	}
	n.await(t, always, stateOpen)
	status.Set(good)
	n.await(t, bound, stateOpen)

	stop()
	n.await(t, bound, stateWaiting)
	if exists(bound.Socket) || exists(always.Socket) {
		t.Error("a socket outlived the door")
	}
	if _, err := s.Client().Get(store.Root(storetest.Context(t)), ownKey); err != nil {
		t.Errorf("the store without its door: %v", err)
	}
}

// TestRemovedUserIsRefusedByEtcd keeps a connection open past the removal of its user: etcd's permissions come first, the connection's end second.
func TestRemovedUserIsRefusedByEtcd(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	if err := s.EnsureUser(storetest.Context(t), "ant"); err != nil {
		t.Fatal(err)
	}
	present := awaitGood(t, s)
	n := &node{directory: storetest.Directory(t), store: s, door: door.New(door.Config{Log: storetest.Log(t)})}
	defer n.run(t, event.New(present))() // which never learns of the removal
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	client := storetest.Dial(t, instance.Socket)
	if _, err := client.Put(storetest.Context(t), ownKey, "v"); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveUser(storetest.Context(t), "ant"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(storetest.Context(t), ownKey, "v"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a put of a removed user: %v, want %v", err, rpctypes.ErrPermissionDenied)
	}
}
