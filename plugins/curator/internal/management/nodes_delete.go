package management

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// DeleteNode implements clusterv1.ManagementServiceServer.
func (s *Service) DeleteNode(ctx context.Context, request *clusterv1.DeleteNodeRequest) (*clusterv1.DeleteNodeResponse, error) {
	// Whether a node is alive, and what runs on the others, is none of the records that decisions compare: it changes by itself all the time.
	stored, err := s.config.Store.ReadCluster(ctx)
	if err != nil {
		return nil, err
	}
	var bypassed []string
	node, err := s.changeNode(ctx, request, func(state *store.State, before *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error) {
		bypassed = nil
		if before.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			return nil, nil
		}
		after := proto.CloneOf(before)
		after.Generation++
		after.State, after.Roles = clusterv1.NodeState_NODE_STATE_DECOMMISSIONED, nil
		s.removed(ctx, before, after, true)
		against := objections(state, stored, before, after)
		if refused := against.final; len(refused) > 0 {
			return nil, answer.Errorf(codes.FailedPrecondition, "%s", strings.Join(refused, "; "))
		}
		if len(against.others) > 0 && !request.GetForce() {
			return nil, answer.Errorf(codes.FailedPrecondition, "%s (`reeve node delete --force` deletes it all the same)", strings.Join(against.others, "; "))
		}
		bypassed = against.others
		return after, nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "node deleted", "node", node.GetId(), "force", request.GetForce(), "bypassed", len(bypassed), "generation", node.GetGeneration())
	return &clusterv1.DeleteNodeResponse{Node: node, Bypassed: bypassed}, nil
}

// objection is what speaks against deleting a node, in sentences.
type objection struct {
	// final is what nobody can mean: what is left would be no cluster that anybody could manage.
	final []string
	// others is what somebody may have looked at and decided otherwise.
	others []string
}

// objections returns what speaks against deleting a node, in a state and by what was seen of the nodes just before. Nothing does where it is no member yet.
func objections(state, seen *store.State, before, after *clusterv1.NodeRecord) (against objection) {
	id := before.GetId()
	alive := seen.Alive(id)
	switch before.GetState() {
	case clusterv1.NodeState_NODE_STATE_NEW, clusterv1.NodeState_NODE_STATE_STANDBY:
		return against
	}
	if alive {
		against.others = append(against.others, fmt.Sprintf("node %s is alive: to have it end its roles and leave in order, `reeve node decommission %s`", id, id))
	}
	next := state.With(&store.Change{Nodes: []*clusterv1.NodeRecord{after}})
	if against.final = lastOf(state, next, id); len(against.final) == 0 {
		against.final = lastRunning(state, next, seen, id)
	}
	if len(against.final) > 0 {
		return against
	}
	// Two questions: whether the others can decide that its member goes, from one moment to the next, and whether they get on without it.
	abrupt, answers := rules.Abrupt(state, id)
	reasons := append(abrupt, rules.Unsafe(state, next)...)
	if len(reasons) == 0 {
		return against
	}
	unknown := state.Store == nil && alive
	alone := state.Store != nil && !slices.ContainsFunc(next.StoreNodes(), func(other string) bool { return votes(state, other) })
	if answers || unknown || alone {
		// A store that has lost its quorum has nobody left who could be told to go on.
		against.final = append(against.final, strings.Join(reasons, "; ")+fmt.Sprintf(": `reeve node decommission %s` has it leave in order", id))
		return against
	}
	// Its member does not answer, and this curator reads and writes all the same: the store knows its quorum better than what it last told of it.
	against.others = append(against.others, reasons...)
	return against
}

// votes reports whether a node has a voting member of the consensus store.
func votes(state *store.State, node string) bool {
	member := state.StoreMember(node)
	return member != nil && !member.GetLearner()
}
