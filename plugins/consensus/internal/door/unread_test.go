package door_test

import (
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestUnreadAnswersEnd leaves an answer and a watch unread. Their connections are closed, and what they held is free.
func TestUnreadAnswersEnd(t *testing.T) {
	n := startWith(t, storetest.Directory(t), door.Config{ReadBound: 2 * time.Second})
	n.ensure(t, "ant")
	ant := n.instance(t, "ant.1", "ant")
	n.open(t, ant)
	ctx := storetest.Context(t)
	writer := apiOf(rawConnection(t, ant.Socket))
	value := []byte(strings.Repeat("x", 1<<20))
	if _, err := writer.Put(ctx, &pb.PutRequest{Key: []byte(ownKey), Value: value}); err != nil {
		t.Fatal(err)
	}
	answering, watching := rawConnection(t, ant.Socket), rawConnection(t, ant.Socket)
	answer, err := answering.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pb.KV_Txn_FullMethodName)
	if err == nil {
		err = answer.SendMsg(reads(ownKey, 3))
	}
	if err != nil {
		t.Fatal(err)
	}
	if !answering.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the connection of an answer that is not read is never closed")
	}
	stream, err := apiOf(watching).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	beginWatch(t, stream, &pb.WatchCreateRequest{Key: []byte(ownKey)})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := writer.Put(ctx, &pb.PutRequest{Key: []byte(ownKey), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if !watching.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the connection of a watch that is not read is never closed")
	}
}

// TestReadsOfWritesAreBounded reads much in transactions that write: each member does it while everybody's writes wait.
func TestReadsOfWritesAreBounded(t *testing.T) {
	_, ant, bee := hungry(t)
	api := apiOf(rawConnection(t, ant.Socket))
	ctx := storetest.Context(t)
	writing := func(times int) *pb.TxnRequest {
		txn := reads(ownKey, times)
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(ownKey + "/w")}}})
		return txn
	}
	if _, err := api.Txn(ctx, writing(7), grpc.MaxCallRecvMsgSize(1<<30)); err != nil {
		t.Errorf("7 MiB: %v", err)
	}
	_, err := api.Txn(ctx, writing(8))
	exceeded(t, "8 MiB and some", err, "8 MiB")
	works(t, bee)
}
