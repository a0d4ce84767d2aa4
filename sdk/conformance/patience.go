package conformance

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// untold hides a context's deadline, which gRPC would send to the plugin. A plugin that hangs until its call times out would otherwise end it at the
// same moment as the suite, and chance would decide the verdict.
type untold struct{ context.Context }

// Deadline returns no deadline.
func (untold) Deadline() (time.Time, bool) { return time.Time{}, false }

// patience are options for a connection that hides its deadlines.
func patience() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(untold{ctx}, method, request, answer, conn, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(untold{ctx}, desc, conn, method, options...)
		}),
	}
}
