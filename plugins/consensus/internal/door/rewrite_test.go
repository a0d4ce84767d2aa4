package door_test

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestNothingIsRewritten has etcd write a value anew that is not in the request, in each way there is.
func TestNothingIsRewritten(t *testing.T) {
	n, ant, _ := hungry(t)
	api := apiOf(rawConnection(t, ant.Socket))
	ctx := storetest.Context(t)
	before := n.store.Server().KV().Rev()
	rewrite := &pb.PutRequest{Key: []byte(ownKey), IgnoreValue: true}
	op := []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: rewrite}}}
	nested := []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: op}}}}
	_, err := api.Put(ctx, rewrite)
	for name, err := range map[string]error{
		"put":                        err,
		"transaction":                drop(api.Txn(ctx, &pb.TxnRequest{Success: op})),
		"branch that is not taken":   drop(api.Txn(ctx, &pb.TxnRequest{Failure: op})),
		"nested in the other branch": drop(api.Txn(ctx, &pb.TxnRequest{Success: nested})),
	} {
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "the user ant puts with ignore_value") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := n.store.Server().KV().Rev(); after != before {
		t.Errorf("the store is at revision %d, not at %d", after, before)
	}
}
