package nodes

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// mistaken is a stream on which nothing can be received for a mistake in the curator.
type mistaken struct {
	grpc.ServerStream
	ctx context.Context
}

func (s mistaken) Context() context.Context { return s.ctx }

func (mistaken) RecvMsg(any) error { panic("a mistake") }

// TestKeepAlivePanics has a panic reach whoever serves the stream, who rescues the curator from it.
func TestKeepAlivePanics(t *testing.T) {
	const rpc = "/KeepAlive"
	guard := auth.NewGuard(auth.GuardConfig{Authenticate: func(context.Context) (auth.Caller, error) {
		return auth.Caller{Kind: clusterv1.Caller_CALLER_NODE, NodeID: "n1"}, nil
	}})
	guard.Enforce(auth.Permissions{rpc: {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_NODE}}})
	defer func() {
		if cause, _ := recover().(string); !strings.Contains(cause, "a mistake") || !strings.Contains(cause, "RecvMsg") {
			t.Errorf("it panics of %q", cause)
		}
	}()
	err := guard.Stream(nil, mistaken{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: rpc, IsClientStream: true}, func(_ any, stream grpc.ServerStream) error {
		return NewService(Config{}).KeepAlive(&grpc.GenericServerStream[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]{ServerStream: stream})
	})
	t.Errorf("it ends with %v", err)
}
