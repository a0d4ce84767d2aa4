package door_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestPastIsReadTogether has a stream that is not read with a watch from the past on it. No further watch begins in the past meanwhile: each would have etcd read history anew.
func TestPastIsReadTogether(t *testing.T) {
	n, ant, _ := hungry(t)
	ctx := storetest.Context(t)
	first := n.store.Server().KV().Rev()
	api := apiOf(rawConnection(t, ant.Socket))
	for k := range 4 {
		if _, err := api.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "%s/%d", ownKey, k), Value: []byte(strings.Repeat("x", 1<<20))}); err != nil {
			t.Fatal(err)
		}
	}
	past := func(id int64) *pb.WatchCreateRequest {
		return &pb.WatchCreateRequest{Key: []byte(ownPrefix), RangeEnd: []byte(ownEnd), StartRevision: first + 1, WatchId: id}
	}
	unread, cancel := context.WithCancel(ctx)
	defer cancel()
	closed, err := api.Watch(unread)
	if err != nil {
		t.Fatal(err)
	}
	// gRPC takes the first answer that is larger than what the client takes; the next one waits.
	beginWatch(t, closed, past(1))
	if told, err := closed.Recv(); err != nil || !told.GetCreated() {
		t.Fatalf("%v, %v", told, err)
	}
	beginWatch(t, closed, past(2))
	told := make(chan error, 1)
	storetest.Eventually(t, "a watch that waits", func() bool {
		ctx, cancel := context.WithCancel(ctx)
		waiting, err := api.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		beginWatch(t, waiting, past(1))
		got := make(chan error, 1)
		go func() {
			_, err := waiting.Recv()
			got <- err
		}()
		// Those that begin now need no history, and are made.
		for range 20 {
			rawWatch(t, ctx, ant.Socket, ownKey)
		}
		select {
		case <-got:
			cancel()
			return false
		default:
			t.Cleanup(cancel)
			told = got
			return true
		}
	})
	cancel()
	select {
	case err := <-told:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("the watch is never made")
	}
}

// TestUnreadAnswersEnd leaves an answer and a watch unread. Their connections are closed, and what they held is free.
func TestUnreadAnswersEnd(t *testing.T) {
	n := startWith(t, storetest.Directory(t), door.Config{ReadBound: 100 * time.Millisecond})
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
