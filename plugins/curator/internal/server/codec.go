package server

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/reeveproject/reeve/plugins/curator/internal/nodes"
)

// codec is gRPC's own for messages of the protocol, sends those as they are that are encoded already, and lets it be known when an answer was sent.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if held, ok := message.(*held); ok {
		return held.encode()
	}
	encoded, ok := message.(*nodes.Encoded)
	if !ok {
		return c.CodecV2.Marshal(message)
	}
	return mem.BufferSlice{mem.SliceBuffer(encoded.Shared), mem.SliceBuffer(encoded.Own)}, nil
}
