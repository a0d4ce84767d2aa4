package enrolment

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Await implements clusterv1.EnrolmentServiceServer.
func (s *Service) Await(_ *clusterv1.AwaitRequest, stream grpc.ServerStreamingServer[clusterv1.AwaitResponse]) error {
	ctx := stream.Context()
	c, err := s.from(ctx, byNodeKey)
	if err != nil {
		return err
	}
	_, stored, err := s.record(ctx, c)
	if err != nil {
		return err
	}
	// The cache may be behind the store: a machine must not be told that it waits when it was approved.
	known := func(snapshot *cache.Snapshot) bool {
		return snapshot.Nodes[c.id].GetGeneration() >= stored.GetGeneration()
	}
	if _, err := s.config.Snapshots.Wait(ctx, known); err != nil {
		return err
	}
	var sent *clusterv1.AwaitResponse
	for watcher := s.config.News.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		node := snapshot.Nodes[c.id]
		if node == nil {
			continue // a record becomes a tombstone first: the cache reads anew
		}
		if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			return answer.Removed(node, snapshot.Generation)
		}
		response := &clusterv1.AwaitResponse{State: node.GetState(), Curators: snapshot.Curators()}
		if proto.Equal(response, sent) {
			continue
		}
		if err := stream.Send(response); err != nil {
			return err
		}
		sent = response
	}
}
