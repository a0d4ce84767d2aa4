package conformance

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// untold is a context whose deadline is not told to the plugin, as gRPC would. One that hangs until its call is given up would else end it at the same moment as the suite,
// and which of the two comes first would decide the verdict.
type untold struct{ context.Context }

// Deadline says that there is none.
func (untold) Deadline() (time.Time, bool) { return time.Time{}, false }

// patience has a connection keep its deadlines to itself.
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
