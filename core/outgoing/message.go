// Package outgoing encodes messages before gRPC has them, and tells when it has them no longer. gRPC takes a message of any size at once, and keeps it until the client reads, after the call has ended, too.
package outgoing

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// givenBack is the size of the smallest buffer that gRPC gives back to its pool.
const givenBack = 1<<10 + 1

// Encode encodes a message for Message.
func Encode(message proto.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, max(givenBack, proto.Size(message))), message)
}

// Message is sent as it is by a server that has the Codec and does not compress. gRPC gives its bytes back to a pool when they are written or thrown away, and Message is that pool.
type Message struct {
	// Bytes is what Encode returned. Several messages may have the same.
	Bytes []byte
	// Sent is called at most once, when gRPC has the bytes no longer. It is not called if the connection ends before, and, in rare cases, if the stream does.
	Sent func()
}

var _ mem.BufferPool = (*Message)(nil)

// Get implements mem.BufferPool.
func (*Message) Get(length int) *[]byte {
	made := make([]byte, length)
	return &made
}

// Put implements mem.BufferPool.
func (m *Message) Put(*[]byte) { m.Sent() }

// Codec is gRPC's own for messages of the protocol, and takes Messages too.
type Codec struct{ encoding.CodecV2 }

// NewCodec returns a Codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(message any) (mem.BufferSlice, error) {
	if encoded, is := message.(*Message); is {
		return mem.BufferSlice{mem.NewBuffer(&encoded.Bytes, encoded)}, nil
	}
	return c.CodecV2.Marshal(message)
}
