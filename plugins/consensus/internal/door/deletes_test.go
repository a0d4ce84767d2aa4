package door_test

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestDeletesAreBounded deletes more keys at once than may be, in every way, and then in the parts that the error names. Everybody's writes wait for a delete, however many keys it has.
func TestDeletesAreBounded(t *testing.T) {
	n, ant, bee := hungry(t)
	ctx := storetest.Context(t)
	api := apiOf(rawConnection(t, ant.Socket))
	const keys, most = 10_112, 10_000
	putMany(t, api, keys)
	storetest.Eventually(t, "the count", func() bool { return n.store.Counted() >= n.store.Server().KV().Rev() })
	remove := func(from, to string) *pb.DeleteRangeRequest {
		return &pb.DeleteRangeRequest{Key: []byte("/reeve/users/ant/n" + from), RangeEnd: []byte("/reeve/users/ant/n" + to)}
	}
	op := func(request *pb.DeleteRangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: request}}
	}
	_, err := api.DeleteRange(ctx, remove("/", "0"))
	exceeded(t, "all", err, "10000 keys at once")
	halves := []*pb.RequestOp{op(remove("/", "/05")), op(remove("/05", "0"))}
	_, err = api.Txn(ctx, &pb.TxnRequest{Failure: halves})
	exceeded(t, "two halves", err, "10000 keys at once")
	_, err = api.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: halves}}}}})
	exceeded(t, "two halves, nested", err, "10000 keys at once")
	works(t, bee)

	listed, err := api.Range(ctx, &pb.RangeRequest{Key: []byte("/reeve/users/ant/n/"), RangeEnd: []byte("/reeve/users/ant/n0"), Limit: most, KeysOnly: true})
	if err != nil || len(listed.GetKvs()) != most {
		t.Fatalf("%d keys, %v", len(listed.GetKvs()), err)
	}
	last := listed.GetKvs()[most-1].GetKey()
	part, err := api.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: listed.GetKvs()[0].GetKey(), RangeEnd: append(last, 0)})
	if err != nil || part.GetDeleted() != most {
		t.Errorf("a part: %d, %v", part.GetDeleted(), err)
	}
	if rest, err := api.DeleteRange(ctx, remove("/", "0")); err != nil || rest.GetDeleted() != keys-most {
		t.Errorf("the rest: %d, %v", rest.GetDeleted(), err)
	}
}
