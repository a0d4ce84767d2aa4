package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func TestStatus(t *testing.T) {
	s, _, first := created(t)
	if err := s.PutStatus(t.Context(), &clusterv1.NodeStatus{NodeId: first.Node.GetId(), Volume: "plain"}); err != nil {
		t.Fatal(err)
	}
	state, err := s.ReadCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Epoch != 1 || state.Node(first.Node.GetId()).GetStatus().GetVolume() != "plain" {
		t.Errorf("epoch %d, %v", state.Epoch, state.Node(first.Node.GetId()))
	}
	if err := s.PutStatus(t.Context(), &clusterv1.NodeStatus{NodeId: "reeve-none"}); !errors.Is(err, store.ErrNoNode) {
		t.Errorf("PutStatus of an unknown node: %v", err)
	}
}

// TestStatusUnderAChange has the record of a node change while the node reports: what it says is kept of one that stands, and never of one that was removed.
func TestStatusUnderAChange(t *testing.T) {
	for name, test := range map[string]struct {
		to   clusterv1.NodeState
		kept bool
	}{
		"another record":       {clusterv1.NodeState_NODE_STATE_UP, true},
		"one that leaves":      {clusterv1.NodeState_NODE_STATE_DECOMMISSIONING, true},
		"one that was removed": {clusterv1.NodeState_NODE_STATE_DECOMMISSIONED, false},
	} {
		t.Run(name, func(t *testing.T) {
			other, client, made := created(t)
			id, changed := made.Node.GetId(), false
			unsteady := clientv3.NewCtxClient(t.Context())
			unsteady.KV = &lossy{KV: client.KV, after: func(bool) error { return nil }, before: func(writes bool) error {
				if !writes || changed {
					return nil
				}
				changed = true
				_, err := other.Update(t.Context(), &call{}, func(state *store.State) (*store.Change, error) {
					after := proto.CloneOf(state.Nodes[id])
					after.Generation++
					after.State = test.to
					return &store.Change{Nodes: []*clusterv1.NodeRecord{after}}, nil
				})
				return err
			}}
			err := store.New(store.Config{Client: unsteady, ClusterUser: "curator", AnswerWithin: time.Minute}).PutStatus(t.Context(), &clusterv1.NodeStatus{NodeId: id, Volume: "plain"})
			var removed *store.RemovedError
			if is := errors.As(err, &removed); is == test.kept || !is && err != nil || is && removed.Node.GetId() != id {
				t.Errorf("the report is answered with %v", err)
			}
			state, err := other.ReadCluster(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if status, kept := state.Statuses[id]; kept != test.kept || !changed {
				t.Errorf("changed: %t; the status is %v", changed, status)
			}
		})
	}
}

// TestStartsUnderATombstone has a node be removed while it starts: nothing of it is kept behind its tombstone.
func TestStartsUnderATombstone(t *testing.T) {
	s, _, made := created(t)
	id := made.Node.GetId()
	before, err := s.ReadNode(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), &call{}, func(state *store.State) (*store.Change, error) {
		after := proto.CloneOf(state.Nodes[id])
		after.State = clusterv1.NodeState_NODE_STATE_DECOMMISSIONED
		return &store.Change{Nodes: []*clusterv1.NodeRecord{after}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	start := &clusterv1.Incarnation{Number: 1, Nonce: make([]byte, 16)}
	if _, err := s.Incarnate(t.Context(), before.Revision, id, start); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a start that was under way: %v", err)
	}
	if err := s.NoteRefused(t.Context(), before.Revision, id, &curatorv1.RefusedIncarnation{Number: 1, Known: 2}); err != nil {
		t.Errorf("a refusal that was under way: %v", err)
	}
	state, err := s.ReadCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Incarnations[id] != nil || state.Refused[id] != nil {
		t.Errorf("kept behind the tombstone: %v, %v", state.Incarnations[id], state.Refused[id])
	}
}

func TestBeat(t *testing.T) {
	s, client, first := created(t)
	id, key := first.Node.GetId(), "heartbeat/"+first.Node.GetId()
	beat := func() clientv3.LeaseID {
		t.Helper()
		by, err := s.Beat(t.Context(), id, time.Hour, clientv3.NoLease)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 || clientv3.LeaseID(got.Kvs[0].Lease) != by {
			t.Fatalf("Get: %v, %v; it is said to be by lease %x", got, err, by)
		}
		return by
	}
	lease := beat()
	if again := beat(); again != lease || lease == clientv3.NoLease {
		t.Errorf("lease %x, then %x", lease, again)
	}
	if _, err := client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if another := beat(); another == lease {
		t.Error("the revoked lease is still in use")
	}
	if _, err := client.Put(t.Context(), key, ""); err != nil { // without a lease
		t.Fatal(err)
	}
	if fresh := beat(); fresh == clientv3.NoLease {
		t.Error("the heartbeat has no lease")
	}
	if _, err := s.Beat(t.Context(), "reeve-none", time.Minute, clientv3.NoLease); !errors.Is(err, store.ErrNoNode) {
		t.Errorf("Beat of an unknown node: %v", err)
	}
}

// TestBeatsThatFollow sends heartbeats whose leases are known: many of them are one stream to the store, and no transaction. One whose lease has gone gets another.
func TestBeatsThatFollow(t *testing.T) {
	_, client, first := created(t)
	counted := clientv3.NewCtxClient(t.Context())
	transactions, leases := 0, &countedLeases{LeaseClient: etcd.Leases(t)}
	counted.Lease = client.Lease
	counted.KV = &lossy{KV: client.KV, after: func(bool) error { return nil }, before: func(bool) error { transactions++; return nil }}
	s := store.New(store.Config{Client: counted, Leases: leases, ClusterUser: "curator", AnswerWithin: time.Minute})
	lease, err := s.Beat(t.Context(), first.Node.GetId(), time.Hour, clientv3.NoLease)
	if err != nil {
		t.Fatal(err)
	}
	known := []clientv3.LeaseID{lease}
	for range 99 { // of other nodes, of which a heartbeat that follows does not ask the store who they are
		granted, err := client.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		known = append(known, granted.ID)
	}
	before, opened := transactions, leases.streams.Load()
	var group sync.WaitGroup
	for _, lease := range known {
		group.Go(func() {
			if by, err := s.Beat(t.Context(), first.Node.GetId(), time.Hour, lease); err != nil || by != lease {
				t.Errorf("lease %x, %v", by, err)
			}
		})
	}
	group.Wait()
	if streams := leases.streams.Load() - opened; transactions != before || streams > 10 {
		t.Errorf("%d heartbeats took %d transactions and %d streams", len(known), transactions-before, streams)
	}
	if _, err := client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	by, err := s.Beat(t.Context(), first.Node.GetId(), time.Hour, lease)
	if err != nil || by == lease || by == clientv3.NoLease {
		t.Errorf("after its lease was revoked: lease %x, %v", by, err)
	}
	got, err := client.Get(t.Context(), "heartbeat/"+first.Node.GetId())
	if err != nil || len(got.Kvs) != 1 || clientv3.LeaseID(got.Kvs[0].Lease) != by {
		t.Errorf("Get: %v, %v", got, err)
	}
}

// countedLeases counts the streams on which leases are renewed.
type countedLeases struct {
	pb.LeaseClient
	streams atomic.Int64
}

func (l *countedLeases) LeaseKeepAlive(ctx context.Context, options ...grpc.CallOption) (pb.Lease_LeaseKeepAliveClient, error) {
	l.streams.Add(1)
	return l.LeaseClient.LeaseKeepAlive(ctx, options...)
}

func TestConcurrentBeats(t *testing.T) {
	s, _, first := created(t)
	const ttl = 3601 // as no other test has it, and longer than all tests take: others count leases
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := s.Beat(t.Context(), first.Node.GetId(), ttl*time.Second, clientv3.NoLease); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	client := etcd.Raw(t) // a namespaced one does not see the keys of other tests' leases
	leases, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine := 0
	for _, lease := range leases.Leases {
		left, err := client.TimeToLive(t.Context(), lease.ID, clientv3.WithAttachedKeys())
		if err != nil {
			t.Fatal(err)
		}
		if left.GrantedTTL == ttl && len(left.Keys) == 0 {
			t.Errorf("lease %x was left behind without a key", lease.ID)
		}
		for _, key := range left.Keys {
			if strings.HasSuffix(string(key), "/heartbeat/"+first.Node.GetId()) {
				mine++
			}
		}
	}
	if mine != 1 {
		t.Errorf("%d leases hold the heartbeat", mine)
	}
}
