package door_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// hungry opens a store to ant, which attacks, and bee, which must not notice. ant has a value of 1 MiB.
func hungry(t *testing.T) (n *node, ant, bee *consensusv1.AccessInstance) {
	t.Helper()
	return hungryFor(t, time.Millisecond)
}

// hungryFor waits for so long for room.
func hungryFor(t *testing.T, patience time.Duration) (n *node, ant, bee *consensusv1.AccessInstance) {
	t.Helper()
	n = startWith(t, storetest.Directory(t), door.Config{Patience: patience, ReadBound: storetest.Bound})
	n.ensure(t, "ant", "bee")
	ant, bee = n.instance(t, "ant.1", "ant"), n.instance(t, "bee.1", "bee")
	n.open(t, ant, bee)
	value := []byte(strings.Repeat("x", 1<<20))
	if _, err := apiOf(rawConnection(t, ant.Socket)).Put(storetest.Context(t), &pb.PutRequest{Key: []byte(ownKey), Value: value}); err != nil {
		t.Fatal(err)
	}
	return n, ant, bee
}

func rangeOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

// reads is a transaction that reads a key so many times.
func reads(key string, times int) *pb.TxnRequest {
	txn := &pb.TxnRequest{}
	for range times {
		txn.Success = append(txn.Success, rangeOp(key))
	}
	return txn
}

// exceeded checks the error that names a bound.
func exceeded(t *testing.T, what string, err error, part string) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(status.Convert(err).Message(), "the user ant") || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: %v", what, err)
	}
}

// works checks that another user notices nothing.
func works(t *testing.T, instance *consensusv1.AccessInstance) {
	t.Helper()
	if _, err := storetest.Dial(t, instance.Socket).Put(storetest.Context(t), foreignKey, "v"); err != nil {
		t.Errorf("the other user: %v", err)
	}
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}

func TestReadsOfATransactionAreBounded(t *testing.T) {
	_, ant, bee := hungry(t)
	api := apiOf(rawConnection(t, ant.Socket))
	ctx := storetest.Context(t)

	nested := &pb.TxnRequest{}
	for range 64 {
		nested.Success = append(nested.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: reads(ownKey, 64)}})
	}
	_, err := api.Txn(ctx, nested)
	exceeded(t, "64 × 64 reads", err, "384")
	works(t, bee)

	wide := &pb.TxnRequest{Compare: []*pb.Compare{{
		Key: []byte("/reeve/users/ant/"), RangeEnd: []byte("/reeve/users/ant0"), Result: pb.Compare_GREATER, Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{},
	}}}
	for range 127 {
		wide.Compare = append(wide.Compare, wide.Compare[0])
	}
	for name, txn := range map[string]*pb.TxnRequest{"128 reads": reads(ownKey, 128), "128 comparisons with everything": wide} {
		_, err := api.Txn(ctx, txn)
		exceeded(t, name, err, "128 MiB")
	}
	if _, err := api.Txn(ctx, reads(ownKey, 3)); err != nil {
		t.Errorf("3 reads: %v", err)
	}
	// What is another's is refused as such, and nothing is said of it.
	if _, err := api.Txn(ctx, reads(foreignKey, 128)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another's key: %v", err)
	}
}

// TestAnswersThatAreNotReadAreBounded makes calls whose answers it does not take, on many connections. gRPC keeps what it cannot send.
func TestAnswersThatAreNotReadAreBounded(t *testing.T) {
	_, ant, bee := hungry(t)
	before := heap()
	ctx, cancel := context.WithCancel(storetest.Context(t))
	defer cancel()
	var connections []*grpc.ClientConn
	var unread []grpc.ClientStream
	for n := range 3 {
		connection := rawConnection(t, ant.Socket)
		connections = append(connections, connection)
		options := []grpc.CallOption{grpc.MaxCallRecvMsgSize(1 << 30)}
		if n%2 == 1 {
			options = append(options, grpc.UseCompressor(gzip.Name))
		}
		for range 2 {
			stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pb.KV_Txn_FullMethodName, options...)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg(reads(ownKey, 50)); err != nil {
				t.Fatal(err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			unread = append(unread, stream)
		}
	}
	// The headers tell that a call was answered: with its answer, or with the refusal in their place.
	refused := 0
	for _, stream := range unread {
		header, err := stream.Header()
		if err != nil || len(header) == 0 {
			refused++
		}
	}
	if answered := len(unread) - refused; answered > 2 {
		t.Errorf("%d answers of 50 MiB each wait to be read, of %d", answered, len(unread))
	}
	if more := heap() - before; more > 300<<20 {
		t.Errorf("they take %d MiB of memory", more>>20)
	}
	_, err := apiOf(rawConnection(t, ant.Socket)).Txn(ctx, reads(ownKey, 60))
	exceeded(t, "one more", err, "read the answers")
	works(t, bee)

	// With the connections goes what waited to be sent on them.
	for _, connection := range connections {
		connection.Close()
	}
	storetest.Eventually(t, "room for an answer", func() bool {
		_, err := apiOf(rawConnection(t, ant.Socket)).Txn(ctx, reads(ownKey, 60), grpc.MaxCallRecvMsgSize(1<<30))
		return err == nil
	})
}

// TestRoomIsGivenBack reads, in any way, more in all than may be unread at a time. What finds no room waits until there is some.
func TestRoomIsGivenBack(t *testing.T) {
	_, ant, _ := hungryFor(t, storetest.Bound)
	const half = 65 // MiB, of which only one has room
	api := apiOf(rawConnection(t, ant.Socket))
	ctx := storetest.Context(t)
	read := func() error {
		_, err := api.Txn(ctx, reads(ownKey, half), grpc.MaxCallRecvMsgSize(1<<30))
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	// An answer that its client gives up is none either.
	given, cancel := context.WithCancel(ctx)
	defer cancel()
	unread, err := rawConnection(t, ant.Socket).NewStream(given, &grpc.StreamDesc{ServerStreams: true}, pb.KV_Txn_FullMethodName)
	if err == nil {
		err = unread.SendMsg(reads(ownKey, half))
	}
	if err == nil {
		_, err = unread.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- read() }()
	cancel()
	if err := <-got; err != nil {
		t.Errorf("after an answer that was given up: %v", err)
	}
}

// TestWatchesAreBounded begins more watches than there may be, and more streams of them.
func TestWatchesAreBounded(t *testing.T) {
	_, ant, bee := hungry(t)
	ctx, cancel := context.WithCancel(storetest.Context(t))
	defer cancel()
	create := func(stream pb.Watch_WatchClient, key string) error {
		return stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)}}})
	}
	api := apiOf(rawConnection(t, ant.Socket))
	many, err := api.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for n := 0; n <= 1000 && create(many, fmt.Sprintf("%s/%d", ownKey, n)) == nil; n++ {
		}
	}()
	begun := 0
	for ; err == nil; begun++ {
		_, err = many.Recv()
	}
	exceeded(t, fmt.Sprintf("after %d watches", begun), err, "1000 watches")
	long, err := api.Watch(ctx)
	if err == nil {
		err = create(long, ownKey+strings.Repeat("x", 5000))
	}
	if err == nil {
		_, err = long.Recv()
	}
	exceeded(t, "a long key", err, "4096 bytes")

	// Those of a stream go with it.
	storetest.Eventually(t, "room for a watch", func() bool {
		again, err := api.Watch(ctx)
		if err == nil {
			err = create(again, ownKey)
		}
		if err == nil {
			_, err = again.Recv()
		}
		return err == nil
	})
	err = nil
	for n := 0; n <= 550 && err == nil; n++ {
		if n%200 == 0 {
			api = apiOf(rawConnection(t, ant.Socket))
		}
		var stream pb.Watch_WatchClient
		if stream, err = api.Watch(ctx); err == nil {
			// Its error is only that the stream has ended; Recv says why.
			_ = create(stream, fmt.Sprintf("%s/%d", ownKey, n))
			_, err = stream.Recv()
		}
	}
	exceeded(t, "streams", err, "512 streams")
	works(t, bee)
}

// TestCallsUnderWayAreBounded begins calls that never send their request.
func TestCallsUnderWayAreBounded(t *testing.T) {
	_, ant, bee := hungry(t)
	// gRPC would keep what is refused too early for as long as this.
	ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
	defer cancel()
	begin := func(on *grpc.ClientConn) grpc.ClientStream {
		call, err := on.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, pb.KV_Put_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		return call
	}
	var connections []*grpc.ClientConn
	for range 8 {
		connection := rawConnection(t, ant.Socket)
		connections = append(connections, connection)
		for range 256 {
			begin(connection)
		}
	}
	other := apiOf(rawConnection(t, ant.Socket))
	read := func() error {
		_, err := other.Range(ctx, &pb.RangeRequest{Key: []byte(ownKey), KeysOnly: true})
		return err
	}
	storetest.Eventually(t, "a call is refused", func() bool { return status.Code(read()) == codes.ResourceExhausted })
	exceeded(t, "one more call", read(), "2048 calls")
	works(t, bee)

	// Who does not stop loses the connection, and with it what was begun on it.
	flood := rawConnection(t, ant.Socket)
	var last grpc.ClientStream
	for range 100 {
		last = begin(flood)
	}
	if err := last.RecvMsg(new(pb.PutResponse)); status.Code(err) != codes.Unavailable {
		t.Errorf("a flood of calls: %v", err)
	}
	// Until the flood has ended, any other call is one of it.
	storetest.Eventually(t, "a call is refused, and not its connection", func() bool { return status.Code(read()) == codes.ResourceExhausted })

	for _, connection := range connections {
		if err := connection.Close(); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Eventually(t, "calls are carried out again", func() bool { return read() == nil })
}
