package usage_test

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestMutexesPassFewKeys: who has many keys may take mutexes, whose prefix has few, in transactions that write.
func TestMutexesPassFewKeys(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, &consensusv1.DesiredUser{ConsensusUser: "ant"})
	const keys, atOnce, perVisit = 20_000, 125, 64
	ctx, ant := storetest.Context(t), as{s, "ant"}
	for first := 0; first < keys; first += atOnce {
		txn := new(pb.TxnRequest)
		for n := range atOnce {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: fmt.Appendf(nil, "/reeve/users/ant/n/%05d", first+n)}}})
		}
		if _, err := ant.txn(ctx, txn); err != nil {
			t.Fatal(err)
		}
	}
	if err := ant.put(ctx, "lock/1", ""); err != nil {
		t.Fatal(err)
	}
	of := func(prefix string, times int) *pb.TxnRequest {
		txn := new(pb.TxnRequest)
		for range times {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{
				Key: []byte("/reeve/users/ant/" + prefix + "/"), RangeEnd: []byte("/reeve/users/ant/" + prefix + "0"), Limit: 1,
			}}})
		}
		return txn
	}
	for name, test := range map[string]struct {
		request *pb.TxnRequest
		want    int64
	}{
		"a mutex":          {of("lock", 2), 2 * perVisit},
		"many keys":        {of("n", 2), 2 * perVisit * (keys + 1)},
		"a mutex, by many": {of("lock", 100), 100 * perVisit * (keys + 1)}, // to look at so many would cost as much as they do
	} {
		if got, err := usage.Passed(ctx, s.Server().KV(), "ant", keys+1, test.request); err != nil || got != test.want {
			t.Errorf("%s counts %d bytes, want %d: %v", name, got, test.want, err)
		}
	}
	remove := &pb.DeleteRangeRequest{Key: []byte("/reeve/users/ant/n/"), RangeEnd: []byte("/reeve/users/ant/n0")}
	if got := usage.PassedByDeletes("ant", keys, remove); got != keys*perVisit {
		t.Errorf("a removal passes %d bytes of what was removed before", got)
	}
	// What is deleted at once holds others up, so it weighs as much as it counts: not many are under way.
	remove.RangeEnd = []byte("/reeve/users/ant/n/10000")
	if weight, err := usage.Weight(ctx, s.Server().KV(), "ant", keys+1, remove); err != nil || weight != usage.Written(remove)+10_000*1024 {
		t.Errorf("a removal of 10000 keys weighs %d: %v", weight, err)
	}
	if got := usage.PassedByDeletes("bee", keys, remove); got != 0 {
		t.Errorf("a removal of another's keys passes %d bytes", got)
	}
}
