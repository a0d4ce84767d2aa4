package store_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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

func TestBeat(t *testing.T) {
	s, client, first := created(t)
	id, key := first.Node.GetId(), "heartbeat/"+first.Node.GetId()
	beat := func() clientv3.LeaseID {
		t.Helper()
		if err := s.Beat(t.Context(), id, time.Hour); err != nil {
			t.Fatal(err)
		}
		got, err := client.Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("Get: %v, %v", got, err)
		}
		return clientv3.LeaseID(got.Kvs[0].Lease)
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
	if err := s.Beat(t.Context(), "reeve-none", time.Minute); !errors.Is(err, store.ErrNoNode) {
		t.Errorf("Beat of an unknown node: %v", err)
	}
}

func TestConcurrentBeats(t *testing.T) {
	s, _, first := created(t)
	const ttl = 3601 // as no other test has it, and longer than all tests take: others count leases
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := s.Beat(t.Context(), first.Node.GetId(), ttl*time.Second); err != nil {
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
