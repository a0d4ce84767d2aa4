package held

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Message is one that is encoded already. A server that sends it needs the [Options].
type Message struct {
	// Shared is what many are sent alike, and Own the rest, for one of them alone. Neither is changed any more.
	Shared, Own []byte
	// Sent, if it is not nil, is called at most once, when gRPC has the message no longer, and nobody else counts the message then. It is not called if the connection ends before, and, in rare cases, if the stream does.
	Sent func()
}

// smallest is the size of the smallest buffer that gRPC gives back to its pool.
const smallest = 1<<10 + 1

// Encode encodes a message for a Message, whose bytes are not copied any more.
func Encode(message proto.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, max(smallest, proto.Size(message))), message)
}

// parts hands a message over to gRPC.
func (m *Message) parts() (parts mem.BufferSlice) {
	// Each part is given back when it was sent itself, so the last one tells.
	shared, last := m.Shared, m.Own
	if len(last) == 0 {
		shared, last = nil, shared
	}
	if m.Sent == nil {
		return mem.BufferSlice{mem.SliceBuffer(shared), mem.SliceBuffer(last)}
	}
	if len(shared) > 0 {
		parts = append(parts, mem.SliceBuffer(shared))
	}
	if cap(last) < smallest {
		last = append(make([]byte, 0, smallest), last...)
	}
	return append(parts, mem.NewBuffer(&last, given(m.Sent)))
}

// given is a pool to which a buffer is given back: that is how gRPC tells that it was written, or thrown away.
type given func()

var _ mem.BufferPool = given(nil)

// Get implements mem.BufferPool.
func (given) Get(length int) *[]byte {
	made := make([]byte, length)
	return &made
}

// Put implements mem.BufferPool.
func (g given) Put(*[]byte) { g() }

// codec is gRPC's own for messages of the protocol, and takes Messages and answers too.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	switch message := message.(type) {
	case *answer:
		return message.encode()
	case *Message:
		return message.parts(), nil
	}
	return c.CodecV2.Marshal(message)
}
