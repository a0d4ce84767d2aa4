package door_test

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestWithoutQuorum stops the other of two members. Old watches and reads that need no quorum end after the grace, for all but the instance that may go on
// without one, and work again when the member is back.
func TestWithoutQuorum(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	const grace = time.Second
	n := &node{directory: directory, store: s, door: door.New(door.Config{Log: storetest.Log(t), QuorumGrace: grace})}
	defer n.run(t, s.Status())()
	n.ensure(t, "ant", "bee")
	second := storetest.Join(t, s, directory)
	bound, always := n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee")
	always.WithoutQuorum = true
	n.open(t, bound, always)
	ctx := storetest.Context(t)
	client := storetest.Dial(t, bound.Socket)
	changes := client.Watch(ctx, ownPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-changes; !created.Created {
		t.Fatalf("no watch: %+v", created)
	}
	if _, err := client.Put(ctx, ownKey, "before"); err != nil {
		t.Fatal(err)
	}
	ended, untouched := make(chan time.Time, 1), make(chan time.Time, 1)
	watch(t, bound.Socket, ownPrefix, ended)
	watch(t, always.Socket, foreignPrefix, untouched)

	stopped := time.Now()
	second.Stop()
	reader := pb.NewKVClient(rawConnection(t, bound.Socket))
	stale := &pb.RangeRequest{Key: []byte(ownKey), Serializable: true}
	if answer, err := reader.Range(ctx, stale); err != nil || len(answer.Kvs) != 1 {
		t.Errorf("a serializable read within the grace: %v, %v", answer, err)
	}
	select {
	case at := <-ended:
		t.Logf("the watch ended %s after the other member, with a grace of %s", at.Sub(stopped), grace)
		// The store looks every two seconds whether it has a quorum, and the door once a second.
		if passed := at.Sub(stopped); passed < grace || passed > grace+5*time.Second {
			t.Errorf("want %s, and at most 5 s more", grace)
		}
	case <-time.After(storetest.Bound):
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

	back := time.Now()
	second.Start()
	n.await(t, bound, stateOpen)
	t.Logf("open again after %s", time.Since(back))
	waiting, cancel := context.WithTimeout(ctx, storetest.Bound)
	defer cancel()
	if _, err := client.Put(waiting, ownKey, "after"); err != nil {
		t.Fatalf("the same client, with a quorum: %v", err)
	}
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
