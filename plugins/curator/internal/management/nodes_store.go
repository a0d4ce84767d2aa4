package management

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// ReplaceStoreMember implements clusterv1.ManagementServiceServer. It notes which member is to go. The store's leader removes it, and the node's role joins anew.
func (s *Service) ReplaceStoreMember(ctx context.Context, request *clusterv1.ReplaceStoreMemberRequest) (*clusterv1.ReplaceStoreMemberResponse, error) {
	node, err := s.changeNode(ctx, request, func(state *store.State, before *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error) {
		if own := state.StoreMember(before.GetId()); before.GetReplacedMember() != "" && (own == nil || own.GetLearner()) && state.ToBeStoreMember(before.GetId()) {
			return nil, nil // the new one is about to come
		}
		member, err := replaceable(state, before.GetId())
		if err != nil || member == before.GetReplacedMember() {
			return nil, err
		}
		after := proto.CloneOf(before)
		after.Generation++
		after.ReplacedMember = member
		return after, nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "member of the store is to be replaced", "node", node.GetId(), "member", node.GetReplacedMember())
	return &clusterv1.ReplaceStoreMemberResponse{Node: node}, nil
}

// replaceable returns the ID of a node's member of the store, or why it cannot be replaced.
func replaceable(state *store.State, node string) (string, error) {
	members := state.StoreNodes()
	member := state.StoreMember(node)
	switch {
	case state.Store == nil:
		return "", answer.Errorf(codes.FailedPrecondition, "the consensus store has not told yet which members it has: try again once `reeve node list` shows them")
	case member == nil || !state.ToBeStoreMember(node):
		return "", answer.Errorf(codes.FailedPrecondition, "node %s has no member of the consensus store that could be replaced: `reeve node list` shows who has one", node)
	case len(members) == 1:
		return "", answer.Errorf(codes.FailedPrecondition, "the member of node %s is the only one of the consensus store, and holds all of the cluster's data, so no other one could fill a new one: "+
			"if its data can be used, have another node join first (`reeve node role add NODE ROLE`); if not, restore the cluster from a snapshot", node)
	}
	if reasons := rules.Irreplaceable(state, node); len(reasons) > 0 {
		return "", answer.Errorf(codes.FailedPrecondition, "%s", strings.Join(reasons, "; "))
	}
	return member.GetMemberId(), nil
}
