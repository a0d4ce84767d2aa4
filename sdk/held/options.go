package held

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// Options are those of a server that sends Messages. It takes no request that is compressed, and compresses no answer, whatever the program is linked with: gRPC does both where any package of it registers a compressor.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		// It goes before one that is registered. There is no other way to have a request refused before it was decompressed.
		//lint:ignore SA1019 gRPC keeps it for all of 1.x.
		grpc.RPCDecompressor(refusing{}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
				return nil, err
			}
			return handler(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
				return err
			}
			return handler(service, stream)
		}),
	}
}

// refusing is a decompressor for the one compressor that programs are linked with, if any.
type refusing struct{}

// Do implements grpc.Decompressor.
func (refusing) Do(io.Reader) ([]byte, error) {
	return nil, errors.New("this server takes no compressed requests: send it as it is")
}

// Type implements grpc.Decompressor.
func (refusing) Type() string { return "gzip" }
