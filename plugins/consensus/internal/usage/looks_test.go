package usage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestFormerRevisionsCount reads at former revisions: etcd walks those of a key from the newest on, however little it finds.
func TestFormerRevisionsCount(t *testing.T) {
	const present = 30_000
	get := func(user string, revision int64) *pb.RangeRequest {
		return &pb.RangeRequest{Key: []byte("/reeve/users/" + user + "/k"), Revision: revision}
	}
	many := func(times int, more ...*pb.RequestOp) *pb.TxnRequest {
		txn := &pb.TxnRequest{Success: more}
		for range times {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: get("ant", 1)}})
		}
		return txn
	}
	for name, test := range map[string]struct {
		request any
		want    int64
	}{
		"the present":   {get("ant", 0), 0},
		"the newest":    {get("ant", present), 0},
		"a former one":  {get("ant", 1), present - 1},
		"a future one":  {get("ant", present+1), 0},
		"another's key": {get("bee", 1), 0},
		"many at once":  {many(360), 360 * (present - 1)},
	} {
		if got := usage.Walked(present, "ant", test.request); got != test.want {
			t.Errorf("%s counts %d, want %d", name, got, test.want)
		}
	}
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	c := usage.StoredPaced(s.Server().KV(), usage.Pace{PerSecond: 1 << 20, AtOnce: 64 << 20})
	c.At(present)
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/reeve/users/ant/k")}}}
	if _, err := c.Weigh(t.Context(), "ant", many(360, put)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "former revisions") {
		t.Errorf("many beside a put: %v", err)
	}
	few := many(8, put)
	if weight, err := c.Weigh(t.Context(), "ant", few); err != nil || weight != usage.Written(few)+8*(present-1)/8 {
		t.Errorf("few beside a put weigh %d: %v", weight, err)
	}
}

// TestLooksForTheQuotaAreOwed has a request looked at that may be too much: the values that it replaces are read for that, whether it is let in or not.
func TestLooksForTheQuotaAreOwed(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, &consensusv1.DesiredUser{ConsensusUser: "ant"})
	ctx := storetest.Context(t)
	const keys, size, perApplied = 70, 10 << 10, 8 // more than are read at a time
	txn := new(pb.TxnRequest)
	for n := range keys {
		if err := (as{s, "ant"}).put(ctx, fmt.Sprintf("%02d", n), strings.Repeat("v", size)); err != nil {
			t.Fatal(err)
		}
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "/reeve/users/ant/%02d", n), Value: []byte("v")}
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
	}
	c := usage.StoredPaced(s.Server().KV(), usage.Pace{PerSecond: 1, AtOnce: 64 << 20})
	growth, owed, err := c.Growth(ctx, "ant", txn)
	if read := int64(keys * (size + len("/reeve/users/ant/00"))); err != nil || growth != (usage.Total{}) || owed < read/perApplied-100 || owed > read/perApplied+2 {
		t.Errorf("it has %d more, and owes %d: %v", growth, owed, err)
	}
	// Who owes is not looked at.
	c.Deleted("ant", &pb.DeleteRangeResponse{Deleted: 1 << 20})
	var late *usage.PaceError
	if _, owed, err := c.Growth(ctx, "ant", txn); !errors.As(err, &late) || owed > 1 {
		t.Errorf("it owes %d more: %v", owed, err)
	}
}
