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
	nodes   map[string]*bufconn.Listener
	follows *store.Generation
}

func (a *answering) Follows() (store.Generation, bool) {
	if a.follows == nil {
		return store.Generation{}, false
	}
	return *a.follows, true
}

func (a *answering) Dial(ctx context.Context, node string) (net.Conn, error) {
	return a.nodes[node].DialContext(ctx)
}

func (a *answering) Credentials() credentials.TransportCredentials { return insecure.NewCredentials() }

type answer struct {
	consensusv1.UnimplementedPeerServiceServer
	code codes.Code
	// generation, if it is not 0, is that of the store that refuses a member of another one.
	generation uint64
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
	said := status.New(a.code, "as it was told")
	if a.generation != 0 {
		said, _ = said.WithDetails(&consensusv1.OtherGeneration{Generation: a.generation})
	}
	return &consensusv1.JoinResponse{}, said.Err()
}

// answer has a node answer until the test ends.
func (a *answering) answer(t *testing.T, node string, says *answer) {
	listener := bufconn.Listen(1 << 16)
	a.nodes[node] = listener
	server := grpc.NewServer()
	consensusv1.RegisterPeerServiceServer(server, says)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
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
				network.answer(t, node, says)
			}
			_, err := askAll(t.Context(), network, []string{"one", "other"}, &consensusv1.JoinRequest{})
			if test.want == nil && err != nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

// TestNodeSaysWhichStoreCounts has members of two stores answer a member of one of them.
func TestNodeSaysWhichStoreCounts(t *testing.T) {
	for name, test := range map[string]struct {
		follows *store.Generation
		own     codes.Code // what another member of the same store says
		other   uint64     // the generation of the other store
		want    error
	}{
		"follows its own":                     {&store.Generation{Number: 5}, codes.OK, 6, nil},
		"follows its own, which is away":      {&store.Generation{Number: 5}, codes.Unavailable, 6, store.ErrWaiting},
		"follows the other":                   {&store.Generation{Number: 6}, codes.OK, 6, store.ErrRemoved},
		"follows a third":                     {&store.Generation{Number: 7}, codes.OK, 6, store.ErrWaiting},
		"follows a former one":                {&store.Generation{Number: 4}, codes.OK, 4, nil},
		"follows a former one, own are away":  {&store.Generation{Number: 4}, codes.Unavailable, 4, store.ErrWaiting},
		"it is not known":                     {nil, codes.OK, 6, nil},
		"it is not known, and own are away":   {nil, codes.Unavailable, 6, store.ErrWaiting},
		"follows the other, own do not serve": {&store.Generation{Number: 6}, codes.PermissionDenied, 6, store.ErrRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			network := &answering{nodes: make(map[string]*bufconn.Listener), follows: test.follows}
			for node, says := range map[string]*answer{"one": {code: test.own}, "other": {code: codes.Aborted, generation: test.other}} {
				network.answer(t, node, says)
			}
			_, err := askAll(t.Context(), network, []string{"one", "other"}, &consensusv1.JoinRequest{Generation: 5, HasData: true})
			if test.want == nil && err != nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
