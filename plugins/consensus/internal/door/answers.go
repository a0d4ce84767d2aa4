package door

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// hold is the room that an answer takes until it was sent. gRPC keeps what a client does not read, after the call's handler has returned; it gives
// the bytes back to a pool when they are written to the connection, or when the stream is reset, and a hold is that pool.
type hold struct {
	caller *caller
	bytes  int64
	on     *connection
	call   *turn
	late   *time.Timer // closes the connection
	once   sync.Once
}

var _ mem.BufferPool = (*hold)(nil)

func (*hold) Get(length int) *[]byte {
	made := make([]byte, length)
	return &made
}

func (h *hold) Put(*[]byte) { h.release() }

func (h *hold) release() {
	h.once.Do(func() {
		h.late.Stop()
		h.on.drop(h)
		h.caller.release(h.bytes)
	})
}

// holding takes over room that was reserved, until an answer is sent or its connection has ended.
func (c *caller) holding(ctx context.Context, bytes int64) *hold {
	h := &hold{caller: c, bytes: bytes, on: connectionOf(ctx), call: turnOf(ctx)}
	h.late = time.AfterFunc(c.readBound, h.on.unread)
	if !h.on.keep(h) {
		h.release()
	}
	return h
}

// answer is a message with the room that it takes.
type answer struct {
	message proto.Message
	hold    *hold
}

// codec encodes answers so that it is known when they were sent.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data, err := proto.Marshal(a.message)
	if err != nil || mem.IsBelowBufferPoolingThreshold(cap(data)) { // gRPC would not give it back
		a.hold.release()
	}
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&data, a.hold)}, nil
}

// bounded carries out a call whose answer has room, which is reckoned before anything is read.
func (c *caller) bounded(ctx context.Context, served Store, request any, handle grpc.UnaryHandler) (any, error) {
	if operationsOf(request) > maxOperations {
		return nil, errExceeded(c.user, "has a transaction of more than %d operations and comparisons, with all that are nested in it, which is the most: make several of it", maxOperations)
	}
	if rewrites(request) {
		return nil, errRewrite(c.user)
	}
	// What gRPC compresses is not what it gives back.
	if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
		return nil, err
	}
	reserved, looked, err := c.reckon(ctx, served, request)
	if err != nil {
		return nil, err
	}
	err = c.begins(ctx, served, request, reserved)
	var message any
	if err == nil {
		message, err = handle(ctx, request)
	}
	if err != nil {
		c.release(reserved)
		if ctx.Err() != nil && reserved > 0 { // etcd may have read it all
			c.owes(max(looked, served.Visited(c.user, request, nil)))
		}
		return nil, err
	}
	found, ok := message.(proto.Message)
	if !ok {
		c.release(reserved)
		return message, nil
	}
	size := int64(proto.Size(found))
	visited := served.Visited(c.user, request, message)
	if mem.IsBelowBufferPoolingThreshold(int(size)) {
		c.release(reserved) // maxStreams bounds them
		if owed := max(looked, visited); owed > 0 {
			c.owes(owed)
		}
		return message, nil
	}
	c.settle(reserved, size)
	c.owes(max(size+visited, looked))
	return &answer{message: found, hold: c.holding(ctx, size)}, nil
}

// begins waits until what was read before is paid for, where a call reads.
func (c *caller) begins(ctx context.Context, served Store, request any, reserved int64) error {
	if asked, ok := request.(*pb.LeaseTimeToLiveRequest); ok {
		lease := asked.GetID()
		if !asked.GetKeys() { // then etcd looks at none of its keys
			lease = 0
		}
		return c.pays(ctx, c.beats, served.Beat(lease))
	}
	if reserved > 0 { // Those that have room are few: all of them may go on.
		return c.paced(ctx)
	}
	return nil
}

// reckon reserves room for what a request reads. Where it can be said without a look into the store that there is enough, it is not looked. looked is what was seen that it reads.
func (c *caller) reckon(ctx context.Context, served Store, request any) (reserved, looked int64, err error) {
	most := served.MostRead(c.user, request)
	if c.tryReserve(most) {
		return most, 0, nil
	}
	bytes, err := served.Reads(ctx, c.user, request, maxAnswers)
	switch {
	case err != nil:
		return 0, 0, err
	case bytes > maxAnswers:
		return 0, 0, errAnswer(c.user)
	}
	// The keys that it passes are known better from its answer.
	return bytes, bytes - served.Visited(c.user, request, nil), c.reserve(ctx, bytes)
}

// operationsOf is how many operations and comparisons a request has.
func operationsOf(request any) int {
	txn, ok := request.(*pb.TxnRequest)
	if !ok {
		return 1
	}
	count := len(txn.GetCompare())
	for _, branch := range [][]*pb.RequestOp{txn.GetSuccess(), txn.GetFailure()} {
		for _, op := range branch {
			if nested := op.GetRequestTxn(); nested != nil {
				count += operationsOf(nested)
			}
			count++
		}
	}
	return count
}

// rewrites reports whether a request has etcd write values anew that are not in it.
func rewrites(request any) bool {
	switch request := request.(type) {
	case *pb.PutRequest:
		return request.GetIgnoreValue()
	case *pb.TxnRequest:
		for _, op := range slices.Concat(request.GetSuccess(), request.GetFailure()) {
			if op.GetRequestPut().GetIgnoreValue() || op.GetRequestTxn() != nil && rewrites(op.GetRequestTxn()) {
				return true
			}
		}
	}
	return false
}

// flowing is a stream of answers, each of which waits until there is room for it.
type flowing struct {
	grpc.ServerStream
	caller *caller
}

func (f flowing) SendMsg(message any) error {
	defer f.caller.beginSend()()
	found, ok := message.(proto.Message)
	if !ok {
		return f.send(message)
	}
	size := min(int64(proto.Size(found)), maxAnswers)
	if mem.IsBelowBufferPoolingThreshold(int(size)) {
		return f.send(message) // gRPC takes 64 KiB of a stream that is not read
	}
	if err := f.caller.await(f.Context(), size); err != nil {
		return err
	}
	h := f.caller.holding(f.Context(), size)
	err := f.send(&answer{message: found, hold: h})
	if err != nil {
		h.release()
	}
	return err
}

// send waits for the client to read what was sent before, but not for ever: what etcd has for it meanwhile waits in memory.
func (f flowing) send(message any) error {
	late := time.AfterFunc(f.caller.readBound, connectionOf(f.Context()).unread)
	defer late.Stop()
	return f.ServerStream.SendMsg(message)
}
