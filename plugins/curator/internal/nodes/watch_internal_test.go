package nodes

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/held"
)

// begunAgain is a store of another generation than the cache knows.
type begunAgain struct {
	Store
	state *store.State
	read  chan struct{}
}

func (b *begunAgain) ReadNode(context.Context, string) (*store.State, error) {
	close(b.read)
	return b.state, nil
}

// watched is a stream on which a node is told something.
type watched struct {
	mistaken
	told chan any
}

func (w watched) SendMsg(message any) error {
	select {
	case w.told <- message:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// TestWatchOfAStoreThatWasBegunAgain: a node is told nothing of a former store by a curator whose store is another one by now.
func TestWatchOfAStoreThatWasBegunAgain(t *testing.T) {
	state := func(revision int64, generation *consensusv1.StoreGeneration) *store.State {
		return &store.State{
			Revision: revision, Cluster: &curatorv1.Cluster{ClusterId: "c"}, Generation: generation,
			Nodes: map[string]*clusterv1.NodeRecord{"n1": {Id: "n1", State: clusterv1.NodeState_NODE_STATE_UP, Generation: 3}},
		}
	}
	snapshot := func(state *store.State) *cache.Snapshot {
		return &cache.Snapshot{State: state, Common: &cache.Common{Generation: state.Generation}, Sendable: new(cache.Sendable)}
	}
	again := &consensusv1.StoreGeneration{Number: 7, Id: []byte("again")}
	read, news := &begunAgain{state: state(1_000_000_010, again), read: make(chan struct{})}, new(event.Value[*cache.Snapshot])
	news.Set(snapshot(state(10, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, ended := watched{mistaken{ctx: ctx}, make(chan any)}, make(chan error, 1)
	service := NewService(Config{Store: read, News: news, Now: time.Now})
	guard := auth.NewGuard(auth.GuardConfig{Authenticate: func(context.Context) (auth.Caller, error) {
		return auth.Caller{Kind: clusterv1.Caller_CALLER_NODE, NodeID: "n1"}, nil
	}})
	const rpc = "/Watch"
	guard.Enforce(auth.Permissions{rpc: {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_NODE}}})
	go func() {
		ended <- guard.Stream(nil, stream, &grpc.StreamServerInfo{FullMethod: rpc, IsServerStream: true}, func(_ any, stream grpc.ServerStream) error {
			return service.Watch(new(clusterv1.WatchRequest), &grpc.GenericServerStream[clusterv1.WatchRequest, clusterv1.WatchResponse]{ServerStream: stream})
		})
	}()
	<-read.read
	news.Set(snapshot(state(11, nil)))
	news.Set(snapshot(state(1_000_000_005, again)))
	select {
	case message := <-stream.told:
		told := new(clusterv1.WatchResponse)
		if err := proto.Unmarshal(message.(*held.Message).Own, told); err != nil || told.GetStoreGeneration() != again.Number {
			t.Errorf("the node is told of generation %d first: %v", told.GetStoreGeneration(), err)
		}
	case err := <-ended:
		t.Fatal(err)
	}
	cancel()
	<-ended
}
