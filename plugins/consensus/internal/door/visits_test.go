package door_test

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// everything is a range in front of all keys of ant.
func everything(change func(*pb.RangeRequest)) *pb.RequestOp {
	request := &pb.RangeRequest{Key: []byte("/reeve/users/ant/"), RangeEnd: []byte("/reeve/users/ant0")}
	change(request)
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: request}}
}

// putMany writes so many keys of ant, as many at once as a transaction takes.
func putMany(t *testing.T, api pb.KVClient, keys int) {
	t.Helper()
	for first := 0; first < keys; first += 128 {
		txn := &pb.TxnRequest{}
		for key := range 128 {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: fmt.Appendf(nil, "/reeve/users/ant/n/%05d", first+key)}}})
		}
		if _, err := api.Txn(storetest.Context(t), txn); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeysThatArePassedCount has etcd pass many keys for answers of some bytes: it counts all keys of a range, whatever is asked for, and those that were deleted until they are compacted.
func TestKeysThatArePassedCount(t *testing.T) {
	n, ant, bee := hungry(t)
	ctx := storetest.Context(t)
	api := apiOf(rawConnection(t, ant.Socket))
	const keys, perKey = 2048, 64
	putMany(t, api, keys)
	count := everything(func(r *pb.RangeRequest) { r.CountOnly = true })
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(ownKey)}}}
	with := func(times int, more ...*pb.RequestOp) *pb.TxnRequest {
		txn := &pb.TxnRequest{Success: more}
		for range times {
			txn.Success = append(txn.Success, count)
		}
		return txn
	}
	counted := func() {
		storetest.Eventually(t, "the count", func() bool { return n.store.Counted() >= n.store.Server().KV().Rev() })
	}
	counted()
	// One that nests is carried out as one that writes, whatever it does.
	nested := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: with(100)}}}}
	for name, txn := range map[string]*pb.TxnRequest{"beside a put": with(100, put), "nested": nested} {
		_, err := api.Txn(ctx, txn)
		exceeded(t, name, err, "100 ranges")
	}
	for name, txn := range map[string]*pb.TxnRequest{"one beside a put": with(1, put), "without a put": with(100)} {
		if _, err := api.Txn(ctx, txn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	works(t, bee)

	visited := func(op *pb.RequestOp) int64 {
		answer, err := api.Range(ctx, op.GetRequestRange())
		if err != nil {
			t.Fatal(err)
		}
		return n.store.Visited("ant", op.GetRequestRange(), answer)
	}
	limited := everything(func(r *pb.RangeRequest) { r.Limit = 1 })
	for name, op := range map[string]*pb.RequestOp{"a count": count, "one key of many": limited} {
		if got := visited(op); got < keys*perKey || got > (keys+10)*perKey {
			t.Errorf("%s counts %d bytes", name, got)
		}
	}
	if _, err := api.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("/reeve/users/ant/n/"), RangeEnd: []byte("/reeve/users/ant/n0")}); err != nil {
		t.Fatal(err)
	}
	counted()
	if got := visited(count); got < keys*perKey {
		t.Errorf("after all are deleted, a count counts %d bytes", got)
	}
	// What a filter has left out was read.
	filtered := everything(func(r *pb.RangeRequest) { r.MaxModRevision = 1 })
	if most := n.store.MostRead("ant", filtered.GetRequestRange()); most < 128<<20 {
		t.Errorf("a request with a filter is not looked at: it may read %d bytes at most", most)
	}
}
