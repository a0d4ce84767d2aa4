package nodes

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/held"
)

// Watch implements clusterv1.NodeServiceServer.
func (s *Service) Watch(request *clusterv1.WatchRequest, stream grpc.ServerStreamingServer[clusterv1.WatchResponse]) error {
	id, err := s.calls(stream.Context())
	if err != nil {
		return err
	}
	ctx, end := s.paces.open(stream.Context(), id)
	defer end()
	// The cache may be behind the store. A node that comes from another curator must not be sent back to roles that it had before.
	stored, err := s.config.Store.ReadNode(ctx, id)
	if err != nil {
		return err
	}
	if stored.Nodes[id] == nil {
		return gone(id)
	}
	generation := stored.Nodes[id].GetGeneration()
	// Nor may it take a store that was begun again for the former one: its heartbeats reach the new one already, and whoever has contact follows no other store for a while.
	known := func(snapshot *cache.Snapshot) bool {
		return snapshot.Cluster != nil && snapshot.Nodes[id].GetGeneration() >= generation &&
			(snapshot.Revision > stored.Revision || proto.Equal(snapshot.State.Generation, stored.Generation))
	}
	if _, err := s.config.News.Wait(ctx, known); err != nil {
		return context.Cause(ctx)
	}
	last := sight{differences: request.GetDifferences(), parts: request.GetParts(), omits: request.GetDifferences() && request.GetOmitSame()}
	for watcher := s.config.News.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		messages, err := last.look(snapshot, id)
		if err != nil {
			return err
		}
		for _, message := range messages {
			if err := stream.SendMsg(message); err != nil {
				return err
			}
		}
	}
}

// sight is what a watch has last sent.
type sight struct {
	// differences is whether the caller takes differences, parts whether it takes what is large in parts, and omits whether it knows what is its own if that is left out: an older core would
	// take the first part for all, and what is left out for nothing.
	differences, parts, omits bool

	node     *clusterv1.NodeRecord
	common   *cache.Common
	response *clusterv1.WatchResponse // without the directory
	sendable *cache.Sendable
}

// look returns the messages for a node whose watch comes to a snapshot; none: nothing of it is news. Of several the last one holds all but the parts of the directory.
func (s *sight) look(snapshot *cache.Snapshot, id string) ([]*held.Message, error) {
	node := snapshot.Nodes[id]
	if node == nil || snapshot.Cluster == nil {
		return nil, gone(id)
	}
	if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
		return nil, answer.Removed(node, snapshot.Generation)
	}
	directory := snapshot.Sendable != s.sendable
	// Most snapshots are about other nodes, and there are as many of them as there are nodes: that they are no news has to be found out fast.
	if node == s.node && snapshot.Common == s.common && !directory {
		return nil, nil
	}
	response := s.response
	if node != s.node || snapshot.Common != s.common {
		response = &clusterv1.WatchResponse{
			Node: node, CaCertificates: snapshot.Common.CA, OwnerPublicKey: snapshot.Common.Owner, Operators: snapshot.Common.Operators,
			Policy: snapshot.Common.Policy, Plugins: Plugins(snapshot.State, node),
			StoreGeneration: snapshot.Common.Generation.GetNumber(), StoreGenerationId: snapshot.Common.Generation.GetId(),
			StoreRecovered: snapshot.Common.Generation.GetKind() == consensusv1.StoreGenerationKind_STORE_GENERATION_KIND_RECOVERED,
		}
		if proto.Equal(response, s.response) {
			if response = s.response; !directory {
				s.node, s.common = node, snapshot.Common
				return nil, nil
			}
		}
	}
	// Messages that are put behind one another are one with the fields of both.
	own, err := proto.Marshal(&clusterv1.WatchResponse{Revision: uint64(snapshot.Revision)})
	if err != nil {
		return nil, err
	}
	if !s.omits || response != s.response {
		if own, err = (proto.MarshalOptions{}).MarshalAppend(own, response); err != nil {
			return nil, err
		}
	}
	parts, err := s.directory(snapshot.Sendable)
	if err != nil {
		return nil, err
	}
	var messages []*held.Message
	last := len(parts) - 1
	for _, part := range parts[:last] {
		messages = append(messages, &held.Message{Shared: part})
	}
	messages = append(messages, &held.Message{Shared: parts[last], Own: own})
	s.node, s.common, s.response, s.sendable = node, snapshot.Common, response, snapshot.Sendable
	return messages, nil
}

// directory returns what is to be sent of a directory, in parts: one that is empty, if nothing is.
func (s *sight) directory(sendable *cache.Sendable) ([][]byte, error) {
	whole := func() ([][]byte, error) {
		whole, err := sendable.Whole()
		return [][]byte{whole}, err
	}
	if !s.differences {
		return whole()
	}
	if s.sendable != nil {
		if s.sendable == sendable {
			return [][]byte{nil}, nil
		}
		difference, err := sendable.Since(s.sendable.Revision())
		if err != nil || len(difference) == 1 || difference != nil && s.parts {
			return difference, err
		}
	}
	if !s.parts {
		return whole()
	}
	return sendable.Parts()
}
