package door_test

import (
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// ttl is how long a lease lasts that is not to end within a test, in seconds.
const ttl = 3600

// bound grants ant so much, as the cluster API does, and waits until it counts.
func bound(t *testing.T, n *node, bytes, leases int64) {
	t.Helper()
	content, err := proto.Marshal(&consensusv1.DesiredState{Users: []*consensusv1.DesiredUser{{ConsensusUser: "ant", BytesQuota: bytes, LeasesQuota: leases}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.store.Client().Put(store.Root(storetest.Context(t)), "/reeve/users/curator/"+consensusv1.DesiredStateKey, string(content)); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "the quota", func() bool { return n.store.UsageOf("ant").BytesQuota == bytes })
}

// TestOverQuota uses up what a user may have, on its socket.
func TestOverQuota(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant", "bee")
	ant, bee, curator := n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee"), n.instance(t, "curator.1", "curator")
	n.open(t, ant, bee, curator)
	const quota, mayLease = 100_000, 2
	bound(t, n, quota, mayLease)
	ctx := storetest.Context(t)
	raw := apiOf(rawConnection(t, ant.Socket))
	value := []byte(strings.Repeat("x", quota*2/3))
	if _, err := raw.Put(ctx, &pb.PutRequest{Key: []byte(ownKey), Value: value}); err != nil {
		t.Fatal(err)
	}
	for range mayLease {
		if _, err := raw.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		var usage *consensusv1.UserUsage
		for _, detail := range status.Convert(err).Details() {
			usage, _ = detail.(*consensusv1.UserUsage)
		}
		if status.Code(err) != codes.ResourceExhausted || usage == nil || usage.BytesQuota != quota || usage.LeasesQuota != mayLease || usage.ConsensusUser != "ant" {
			t.Errorf("%s: %v, %v", what, err, usage)
		}
	}
	_, err := raw.Put(ctx, &pb.PutRequest{Key: []byte(ownKey + "2"), Value: value})
	refused("a put", err)
	_, err = raw.Txn(ctx, &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(ownKey + "2"), Value: value}}}}})
	refused("a transaction", err)
	_, err = raw.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl})
	refused("a lease", err)

	// The others, the cluster user beyond the quotas of all, and what does not grow.
	for instance, key := range map[*consensusv1.AccessInstance]string{bee: foreignKey, curator: "/reeve/users/curator/key"} {
		if _, err := storetest.Dial(t, instance.Socket).Put(ctx, key, strings.Repeat("x", 2*quota)); err != nil {
			t.Errorf("the user %s: %v", instance.ConsensusUser, err)
		}
	}
	if _, err := raw.Put(ctx, &pb.PutRequest{Key: []byte(ownKey), Value: value}); err != nil {
		t.Errorf("the same once more: %v", err)
	}
	if _, err := raw.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(ownKey)}); err != nil {
		t.Errorf("a delete: %v", err)
	}
	last, err := raw.Put(ctx, &pb.PutRequest{Key: []byte(ownKey + "2"), Value: value})
	if err != nil {
		t.Errorf("after the delete: %v", err)
	}
	storetest.Eventually(t, "the count of the last put", func() bool { return n.store.Counted() >= last.GetHeader().GetRevision() })
	if usage := n.store.UsageOf("ant"); usage.Refused != 3 || usage.Leases != mayLease || usage.Bytes != int64(len(ownKey)+1+len(value)) {
		t.Errorf("it has %v", usage)
	}

	// What Status says is about the user.
	answer, err := raw.Status(ctx, &pb.StatusRequest{})
	if err != nil || answer.DbSize != int64(len(ownKey)+1+len(value)) || answer.DbSizeQuota != quota || answer.Version == "" || answer.RaftIndex != 0 {
		t.Errorf("status: %v, %v", answer, err)
	}
}

// TestLeasesOfAUser grants leases as etcd's own client does, and looks at what the user sees of them.
func TestLeasesOfAUser(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant", "bee")
	ant, bee := n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee")
	n.open(t, ant, bee)
	ctx := storetest.Context(t)
	mine, other := storetest.Dial(t, ant.Socket), storetest.Dial(t, bee.Socket)
	granted := make(map[clientv3.LeaseID]bool)
	for range 5 {
		lease, err := mine.Grant(ctx, ttl)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Grant(ctx, ttl); err != nil {
			t.Fatal(err)
		}
		if numbers.OfLease(int64(lease.ID)) != n.store.Number("ant") {
			t.Errorf("the lease %x does not carry the number %d", lease.ID, n.store.Number("ant"))
		}
		granted[lease.ID] = true
	}
	listed, err := mine.Leases(ctx)
	if err != nil || len(listed.Leases) != len(granted) {
		t.Errorf("the leases of the user are %v, %v", listed, err)
	}
	for _, lease := range listed.Leases {
		if !granted[lease.ID] {
			t.Errorf("the lease %x is another's", lease.ID)
		}
	}
	for lease := range granted {
		if _, err := mine.Put(ctx, ownKey, "v", clientv3.WithLease(lease)); err != nil {
			t.Error(err)
		}
		alive, err := mine.KeepAlive(ctx, lease)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case answer := <-alive:
			if answer == nil || answer.TTL != ttl {
				t.Errorf("the lease was kept alive for %v", answer)
			}
		case <-time.After(storetest.Bound):
			t.Fatal("the lease is not kept alive")
		}
		if _, err := mine.Revoke(ctx, lease); err != nil {
			t.Error(err)
		}
	}
}
