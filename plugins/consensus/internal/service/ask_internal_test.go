package service

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// answering is members that answer as they are told.
type answering struct {
	Network
	nodes map[string]*bufconn.Listener
}

func (a *answering) Dial(ctx context.Context, node string) (net.Conn, error) {
	return a.nodes[node].DialContext(ctx)
}

func (a *answering) Credentials() credentials.TransportCredentials { return insecure.NewCredentials() }

type answer struct {
	consensusv1.UnimplementedPeerServiceServer
	code codes.Code
	// before, if it is not nil, is waited for, and after is closed when the answer is given.
	before, after chan struct{}
}

func (a *answer) Join(context.Context, *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
	if a.before != nil {
		<-a.before
	}
	if a.after != nil {
		defer close(a.after)
	}
	return &consensusv1.JoinResponse{}, status.Error(a.code, "as it was told")
}

// TestOneThatIsAliveCountsMore has a store that was begun again say that a member was removed, and members of the store that it is of, which is alive, say that it was not.
func TestOneThatIsAliveCountsMore(t *testing.T) {
	for name, test := range map[string]struct {
		one, other codes.Code
		want       error
	}{
		"alive":           {codes.FailedPrecondition, codes.OK, nil},
		"removed":         {codes.FailedPrecondition, codes.FailedPrecondition, store.ErrRemoved},
		"nobody else":     {codes.FailedPrecondition, codes.Unavailable, store.ErrRemoved},
		"nobody":          {codes.Unavailable, codes.Unavailable, store.ErrWaiting},
		"a former one is": {codes.FailedPrecondition, codes.Aborted, store.ErrRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			said := make(chan struct{})
			network := &answering{nodes: make(map[string]*bufconn.Listener)}
			for node, says := range map[string]*answer{"one": {code: test.one, after: said}, "other": {code: test.other, before: said}} {
				listener := bufconn.Listen(1 << 16)
				network.nodes[node] = listener
				server := grpc.NewServer()
				consensusv1.RegisterPeerServiceServer(server, says)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = server.Serve(listener)
				}()
				defer func() {
					server.Stop()
					<-done
				}()
			}
			_, err := askAll(t.Context(), network, []string{"one", "other"}, &consensusv1.JoinRequest{})
			if test.want == nil && err != nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
