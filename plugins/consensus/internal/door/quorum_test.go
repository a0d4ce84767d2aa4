package door_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/sdk/event"
)

// TestWithoutQuorum stops the other of two members. Old watches and reads that need no quorum end after the grace, for all but the instance that may go on
// without one, and work again when the member is back.
func TestWithoutQuorum(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	// The door is told of the store as it is, but the grace is over when the test says so.
	const grace = time.Hour
	var over atomic.Bool
	status := &event.Value[store.Status]{}
	tell := func(now store.Status) {
		if over.Load() && !now.NoQuorum.IsZero() {
			now.NoQuorum = now.NoQuorum.Add(-grace)
		}
		status.Set(now)
	}
	ctx := storetest.Context(t)
	var telling sync.WaitGroup
	defer telling.Wait()
	told, stop := context.WithCancel(ctx)
	defer stop()
	telling.Go(func() {
		for watcher := s.Status().Watch(); ; {
			now, err := watcher.Next(told)
			if err != nil {
				return
			}
			tell(now)
		}
	})
	n := &node{directory: directory, store: s, door: door.New(door.Config{Log: storetest.Log(t), QuorumGrace: grace})}
	defer n.run(t, status)()
	n.ensure(t, "ant", "bee")
	second := storetest.Join(t, s, directory)
	bound, always := n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee")
	always.WithoutQuorum = true
	n.open(t, bound, always)
	client := storetest.Dial(t, bound.Socket)
	changes := client.Watch(ctx, ownPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-changes; !created.Created {
		t.Fatalf("no watch: %+v", created)
	}
	write(t, client, "before")
	ended, untouched := watch(t, bound.Socket, ownPrefix), watch(t, always.Socket, foreignPrefix)

	second.Stop()
	lost, err := s.Status().Wait(ctx, func(status store.Status) bool { return !status.NoQuorum.IsZero() })
	if err != nil {
		t.Fatal("the store does not say that it has no quorum")
	}
	tell(lost)
	another := n.instance(t, "bee.2", "bee")
	another.WithoutQuorum = true
	n.set(t, bound, always, another)
	n.await(t, another, stateOpen) // the door has looked at all of them since
	reader := pb.NewKVClient(rawConnection(t, bound.Socket))
	stale := &pb.RangeRequest{Key: []byte(ownKey), Serializable: true}
	if answer, err := reader.Range(ctx, stale); err != nil || len(answer.Kvs) != 1 {
		t.Errorf("a serializable read within the grace: %v, %v", answer, err)
	}
	select {
	case <-ended:
		t.Error("the watch has ended within the grace")
	default:
	}
	over.Store(true)
	tell(lost)
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal("the watch goes on without a quorum")
	}
	if reason := n.await(t, bound, stateWaiting); reason == "" {
		t.Error("no reason")
	}
	if answer, err := reader.Range(brief(t), stale); err == nil {
		t.Errorf("a serializable read after the grace: %v", answer)
	}
	n.await(t, always, stateOpen)
	if _, err := pb.NewKVClient(rawConnection(t, always.Socket)).Range(ctx, &pb.RangeRequest{Key: []byte(foreignKey), Serializable: true}); err != nil {
		t.Errorf("the instance that may go on: %v", err)
	}
	select {
	case <-untouched:
		t.Error("its watch has ended, too")
	default:
	}

	second.Start()
	n.await(t, bound, stateOpen)
	write(t, client, "after") // the same client, with a quorum
	for {
		change, ok := <-changes
		if !ok || change.Err() != nil {
			t.Fatalf("the watch did not go on: %v", change.Err())
		}
		if n := len(change.Events); n > 0 && string(change.Events[n-1].Kv.Value) == "after" {
			return
		}
	}
}

// write puts ant's key. A write that is lost because the leader changes is made again.
func write(t *testing.T, client *clientv3.Client, value string) {
	t.Helper()
	var refused error
	defer func() {
		if t.Failed() {
			t.Logf("the last write: %v", refused)
		}
	}()
	storetest.Eventually(t, "a write of "+value, func() bool {
		_, refused = client.Put(storetest.Context(t), ownKey, value)
		return refused == nil
	})
}
