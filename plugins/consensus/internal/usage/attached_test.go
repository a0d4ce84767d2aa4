package usage_test

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestKeysOfALeaseAreBounded puts more keys on a lease than may be, since etcd deletes them all in one step when it ends. What is on it already, or leaves it, takes no room.
func TestKeysOfALeaseAreBounded(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, &consensusv1.DesiredUser{ConsensusUser: "ant"})
	ctx, ant := storetest.Context(t), as{s, "ant"}
	lease := func() int64 {
		id := numbers.NewLease(s.Number("ant"))
		if _, err := do(ctx, ant, &pb.LeaseGrantRequest{ID: id, TTL: 3600}, s.Server().LeaseGrant); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first, second := lease(), lease()
	put := func(lease int64, key string) *pb.PutRequest {
		return &pb.PutRequest{Key: []byte("/reeve/users/ant/" + key), Lease: lease}
	}
	// Real ones would have etcd check two million keys.
	const most, real = 2000, 3
	counter := follow(t, s)
	counter.Pretend(first, most-real)
	admitted := func(request *pb.PutRequest) error {
		settle, err := counter.Admit(ctx, "ant", request)
		if err != nil {
			return err
		}
		answer, err := s.Server().Put(ant.ctx(ctx), request)
		settle(answer, err)
		return err
	}
	fits := func(what string, request *pb.PutRequest) {
		t.Helper()
		if err := admitted(request); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	full := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), fmt.Sprintf("2000 keys on the lease %x", first)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range real {
		fits("the last that fit", put(first, fmt.Sprint(n)))
	}
	full("one more", admitted(put(first, "more")))
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put(first, "more")}}
	_, err := counter.Admit(ctx, "ant", &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: []*pb.RequestOp{op}}}}}})
	full("one more, nested, in a branch that is not taken", err)
	fits("one on another lease", put(second, "more"))
	fits("one on none", put(0, "1"))
	fits("what that has left", put(first, "3"))
	full("one more than that", admitted(put(first, "4")))
	fits("from one lease to another", put(second, "2"))
	fits("what that has left", put(first, "4"))
	if err := ant.remove(ctx, "3", ""); err != nil {
		t.Fatal(err)
	}
	// What is under way takes room, until it is known to have had no effect.
	settle, err := counter.Admit(ctx, "ant", put(first, "5"))
	if err != nil {
		t.Fatal(err)
	}
	full("one more than is under way", admitted(put(first, "6")))
	settle(nil, status.Error(codes.InvalidArgument, "no"))
	fits("what that has left", put(first, "6"))
	if got := counter.Attached(); got[second] != 2 {
		t.Errorf("the leases have %v keys", got)
	}
}

// TestKeysOnLeasesAreWeighed puts many keys at once on a lease that has many: etcd checks all of them for each.
func TestKeysOnLeasesAreWeighed(t *testing.T) {
	const lease, pace, perCheck, perApplied = 7, 1 << 20, 256, 8
	for _, test := range []struct {
		puts, attached int64
		fits           bool
	}{{10, 1000, true}, {32, 1000, true}, {33, 1000, false}, {384, 0, true}} {
		c := usage.Paced(usage.Pace{PerSecond: pace, AtOnce: 64 * pace})
		c.Pretend(lease, test.attached)
		txn := new(pb.TxnRequest)
		for n := range test.puts {
			put := &pb.PutRequest{Key: fmt.Appendf(nil, "/reeve/users/ant/%d", n), Lease: lease}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		weight, err := c.Weigh(t.Context(), "ant", txn)
		switch want := usage.Written(txn) + test.puts*test.attached*perCheck/perApplied; {
		case !test.fits:
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "put fewer at once") {
				t.Errorf("%d keys on a lease with %d: %v", test.puts, test.attached, err)
			}
		case err != nil || weight != want:
			t.Errorf("%d keys on a lease with %d weigh %d, want %d: %v", test.puts, test.attached, weight, want, err)
		}
	}
	// So does its revocation.
	c := usage.Paced(usage.Pace{PerSecond: pace, AtOnce: 64 * pace})
	c.Pretend(lease, 1000)
	revoke := &pb.LeaseRevokeRequest{ID: lease}
	if weight, err := c.Weigh(t.Context(), "ant", revoke); err != nil || weight != usage.Written(revoke)+1000*1024 {
		t.Errorf("a revocation of 1000 keys weighs %d: %v", weight, err)
	}
}
