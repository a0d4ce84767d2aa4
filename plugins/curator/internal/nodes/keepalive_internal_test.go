package nodes

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// mistaken is a stream on which nothing can be received for a mistake in the curator.
type mistaken struct {
	grpc.ServerStream
	ctx context.Context
}

func (s mistaken) Context() context.Context { return s.ctx }

func (mistaken) RecvMsg(any) error { panic("a mistake") }

// beating is a stream of a node that sends so many heartbeats.
type beating struct {
	mistaken
	left *int
}

func (b beating) RecvMsg(any) error {
	if *b.left--; *b.left < 0 {
		return io.EOF
	}
	return nil
}

func (beating) SendMsg(any) error { return nil }

// beaten counts heartbeats.
type beaten struct {
	Store
	beats int
}

func (b *beaten) Beat(context.Context, string, time.Duration, clientv3.LeaseID) (clientv3.LeaseID, error) {
	b.beats++
	return 1, nil
}

// TestHeartbeatsHaveAPace: each of them is an exchange with the store, and who has the key of a node can send them as fast as they are answered.
func TestHeartbeatsHaveAPace(t *testing.T) {
	store, now, many := new(beaten), time.Now(), 2*callsAtOnce
	err := asNode(beating{mistaken{ctx: t.Context()}, &many}, NewService(Config{Store: store, Snapshots: new(event.Value[*cache.Snapshot]), Now: func() time.Time { return now }}))
	if status.Code(err) != codes.ResourceExhausted || store.beats != callsAtOnce-1 {
		t.Errorf("after %d heartbeats: %v", store.beats, err)
	}
}

// asNode has a node hold a stream of heartbeats.
func asNode(stream grpc.ServerStream, service *Service) error {
	const rpc = "/KeepAlive"
	guard := auth.NewGuard(auth.GuardConfig{Authenticate: func(context.Context) (auth.Caller, error) {
		return auth.Caller{Kind: clusterv1.Caller_CALLER_NODE, NodeID: "n1"}, nil
	}})
	guard.Enforce(auth.Permissions{rpc: {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_NODE}}})
	return guard.Stream(nil, stream, &grpc.StreamServerInfo{FullMethod: rpc, IsClientStream: true}, func(_ any, stream grpc.ServerStream) error {
		return service.KeepAlive(&grpc.GenericServerStream[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]{ServerStream: stream})
	})
}

// TestKeepAlivePanics has a panic reach whoever serves the stream, who rescues the curator from it.
func TestKeepAlivePanics(t *testing.T) {
	defer func() {
		if cause, _ := recover().(string); !strings.Contains(cause, "a mistake") || !strings.Contains(cause, "RecvMsg") {
			t.Errorf("it panics of %q", cause)
		}
	}()
	err := asNode(mistaken{ctx: t.Context()}, NewService(Config{}))
	t.Errorf("it ends with %v", err)
}
