package door_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestReserve lets a user write as fast as it can until it is refused, by many connections at a time and with requests that are meant to look large, and
// expects that etcd's own quota is never touched.
func TestReserve(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.OpenWith(t, storetest.Small(t, directory), storetest.Plan)
	n := &node{directory: directory, store: s, door: door.New(door.Config{Log: storetest.Log(t)})}
	defer n.run(t, s.Status())()
	n.ensure(t, "ant", "bee")
	ant, bee, curator := n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee"), n.instance(t, "curator.1", "curator")
	n.open(t, ant, bee, curator)
	ctx := storetest.Context(t)

	// Few bytes that etcd reckons to be many.
	many := &pb.TxnRequest{}
	for range 60_000 {
		many.Success = append(many.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}})
	}
	_, err := apiOf(storetest.Dial(t, ant.Socket).ActiveConnection()).Txn(ctx, many)
	exceeded(t, "a transaction of many puts", err, "384")

	// A store that is refused only for its holes recovers by itself. This much of live data leaves it nothing to gain.
	const stored = 9 << 20
	value := strings.Repeat("x", 256<<10)
	var accepted atomic.Int64
	var group sync.WaitGroup
	for writer := range 16 {
		client := storetest.Dial(t, ant.Socket)
		group.Go(func() {
			for {
				switch err := put(ctx, client, writer, &accepted, value); {
				case err == nil:
				case errors.Is(err, rpctypes.ErrTimeout) && ctx.Err() == nil: // etcd rewrites its database
				case !errors.Is(err, rpctypes.ErrNoSpace):
					t.Error(err)
					return
				case accepted.Load() >= stored:
					return
				}
			}
		})
	}
	group.Wait()
	if alarms := s.Server().Alarms(); len(alarms) != 0 {
		t.Errorf("a user has set off %v", alarms)
	}
	size := s.Server().Backend().Size()
	t.Logf("the user was stopped at %d of %d bytes", size, store.MinQuota)
	if size > store.MinQuota*3/4 {
		t.Errorf("the user has taken from the reserve: %d bytes", size)
	}

	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("%s in a full store: %v, want %v", what, err, rpctypes.ErrNoSpace)
		}
	}
	user, other := storetest.Dial(t, ant.Socket), storetest.Dial(t, bee.Socket)
	_, err = user.Put(ctx, ownKey, "small")
	refused("a small put", err)
	_, err = other.Put(ctx, foreignKey, "small")
	refused("a small put of another user", err)
	_, err = user.Grant(ctx, 60)
	refused("a lease", err)
	_, err = user.Txn(ctx).If(clientv3.Compare(clientv3.Version(ownKey), "=", 0)).Then(clientv3.OpGet(ownKey)).Else(clientv3.OpPut(ownKey, "v")).Commit()
	refused("a transaction that may put", err)
	if _, err := user.Get(ctx, ownKey); err != nil {
		t.Errorf("a read in a full store: %v", err)
	}
	cluster := storetest.Dial(t, curator.Socket)
	for n := range 2 {
		if _, err := cluster.Put(ctx, fmt.Sprintf("/reeve/users/curator/%d", n), strings.Repeat("x", 1<<20)); err != nil {
			t.Errorf("the cluster user in a full store: %v", err)
		}
	}
	if _, err := cluster.Grant(ctx, 60); err != nil {
		t.Errorf("a lease of the cluster user in a full store: %v", err)
	}
	if _, err := s.Client().Put(store.Root(ctx), "/key", "v"); err != nil {
		t.Errorf("root in a full store: %v", err)
	}
	if _, err := user.Txn(ctx).Then(clientv3.OpDelete(ownPrefix, clientv3.WithPrefix())).Commit(); err != nil {
		t.Errorf("a transaction that only deletes: %v", err)
	}
	rested, cancel := context.WithTimeout(t.Context(), storetest.RestBound)
	defer cancel()
	if _, err := s.Status().Wait(rested, func(status store.Status) bool { return status.Room == store.RoomForAll }); err != nil {
		t.Fatal("the store did not recover after the delete")
	}
	if _, err := other.Put(rested, foreignKey, value); err != nil {
		t.Errorf("after the recovery: %v", err)
	}
}

// put puts a new key with a value and counts the bytes that etcd has accepted.
func put(ctx context.Context, client *clientv3.Client, writer int, accepted *atomic.Int64, value string) error {
	_, err := client.Put(ctx, fmt.Sprintf("%s%d/%d", ownPrefix, writer, accepted.Load()), value)
	if err == nil {
		accepted.Add(int64(len(value)))
	}
	return err
}
