package management

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// DrainNode implements clusterv1.ManagementServiceServer.
func (s *Service) DrainNode(ctx context.Context, request *clusterv1.DrainNodeRequest) (*clusterv1.DrainNodeResponse, error) {
	drained := !request.GetUndo()
	node, err := s.changeNode(ctx, request, func(_ *store.State, before *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error) {
		switch before.GetState() {
		case clusterv1.NodeState_NODE_STATE_STANDBY, clusterv1.NodeState_NODE_STATE_UP:
		default:
			return nil, answer.Errorf(codes.FailedPrecondition, "node %s is %s: only a node that is Up, or is about to be, can be drained", before.GetId(), stateName(before.GetState()))
		}
		if before.GetDrained() == drained {
			return nil, nil
		}
		after := proto.CloneOf(before)
		after.Generation++
		after.Drained = drained
		return after, nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "node drained", "node", node.GetId(), "drained", drained, "generation", node.GetGeneration())
	return &clusterv1.DrainNodeResponse{Node: node}, nil
}

// DecommissionNode implements clusterv1.ManagementServiceServer. It begins; the steward finishes once the node says that nothing runs on it any more.
func (s *Service) DecommissionNode(ctx context.Context, request *clusterv1.DecommissionNodeRequest) (*clusterv1.DecommissionNodeResponse, error) {
	node, err := s.changeNode(ctx, request, func(state *store.State, before *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error) {
		switch id := before.GetId(); before.GetState() {
		case clusterv1.NodeState_NODE_STATE_UP:
		case clusterv1.NodeState_NODE_STATE_DECOMMISSIONING, clusterv1.NodeState_NODE_STATE_DECOMMISSIONED:
			return nil, nil // that was decided already
		default:
			return nil, answer.Errorf(codes.FailedPrecondition, "node %s is %s and has never been a member, so that nothing of it has to end: `reeve node delete %s`",
				id, stateName(before.GetState()), id)
		}
		after := proto.CloneOf(before)
		after.Generation++
		after.State = clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
		after.Roles = leavers(state, before, nil)
		s.removed(ctx, before, after, false)
		if err := s.mayGo(state, after); err != nil {
			return nil, err
		}
		return after, s.curatorStays(ctx, state, before, after)
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "node is to be decommissioned", "node", node.GetId(), "state", stateName(node.GetState()), "generation", node.GetGeneration())
	return &clusterv1.DecommissionNodeResponse{Node: node}, nil
}

// removed completes the record of a node that leaves: who decided it, and that all data of its roles goes.
func (s *Service) removed(ctx context.Context, before, after *clusterv1.NodeRecord, deleted bool) {
	caller, _ := auth.CallerOf(ctx)
	now := timestamppb.New(s.config.Now())
	after.Since, after.Removal = now, &clusterv1.Removal{By: caller.String(), Time: now, Deleted: deleted}
	var roles []string
	for _, assignment := range before.GetRoles() {
		roles = append(roles, assignment.GetRole())
	}
	after.WipedRoles = wiped(after, roles...)
}

// mayGo returns why the cluster cannot do without a node.
func (s *Service) mayGo(state *store.State, after *clusterv1.NodeRecord) error {
	next := state.With(&store.Change{Nodes: []*clusterv1.NodeRecord{after}})
	reasons := append(lastOf(state, next, after.GetId()), rules.Unsafe(state, next)...)
	if len(reasons) > 0 {
		return answer.Errorf(codes.FailedPrecondition, "%s", strings.Join(reasons, "; "))
	}
	return nil
}

// nodeChange is a request that changes the record of a node.
type nodeChange interface {
	GetNodeId() string
	GetDryRun() bool
}

// changeNode makes one management write that replaces the record of a node by the one that wish returns; nil: it stays as it is. It returns the record as it then is.
func (s *Service) changeNode(
	ctx context.Context, request nodeChange, wish func(*store.State, *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error),
) (*clusterv1.NodeRecord, error) {
	var id string
	state, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		var err error
		if id, err = find(state, request.GetNodeId()); err != nil {
			return nil, err
		}
		after, err := wish(state, state.Nodes[id])
		if err != nil || after == nil {
			return nil, err
		}
		return &store.Change{Nodes: []*clusterv1.NodeRecord{after}}, nil
	})
	if err != nil {
		return nil, err
	}
	return state.Nodes[id], nil
}

// stateName is the state of a node as people call it.
func stateName(state clusterv1.NodeState) string {
	name := strings.ToLower(strings.TrimPrefix(state.String(), "NODE_STATE_"))
	return strings.ToUpper(name[:1]) + name[1:]
}

// lastOf says which capabilities would go with a node without which the cluster cannot be managed.
func lastOf(state, next *store.State, node string) (reasons []string) {
	for _, capability := range rules.Lost(state, next) {
		providers := strings.Join(rules.Providers(state, capability), " or ")
		reasons = append(reasons, "node "+node+" is the last of the cluster with a role that provides "+capability+
			", without which the cluster cannot be managed: assign "+providers+" to another node first, and wait until it runs there")
	}
	return slices.Clip(reasons)
}

// curatorStays returns why a change may not take the curator from a node: no other one is known to run.
func (s *Service) curatorStays(ctx context.Context, state *store.State, before, after *clusterv1.NodeRecord) error {
	next := state.With(&store.Change{Nodes: []*clusterv1.NodeRecord{after}})
	if !losesCurator(state, next, before.GetId()) {
		return nil
	}
	// What runs is none of the records that decisions compare: it changes by itself all the time.
	seen, err := s.config.Store.ReadCluster(ctx)
	if err != nil {
		return err
	}
	if reasons := lastRunning(state, next, seen, before.GetId()); len(reasons) > 0 {
		return answer.Errorf(codes.FailedPrecondition, "%s", strings.Join(reasons, "; "))
	}
	return nil
}

// losesCurator reports whether a change takes the curator from a node that is Up.
func losesCurator(state, next *store.State, node string) bool {
	before, after := state.Nodes[node], next.Nodes[node]
	if before.GetState() != clusterv1.NodeState_NODE_STATE_UP || !rules.Provided(state, before, rules.CapabilityCluster) {
		return false
	}
	return after.GetState() != clusterv1.NodeState_NODE_STATE_UP || !rules.Provided(next, after, rules.CapabilityCluster)
}

// lastRunning says so if no curator would be left that runs, by what nodes last reported, once a node has none any more: nobody could change anything in the cluster then.
func lastRunning(state, next, seen *store.State, node string) []string {
	if !losesCurator(state, next, node) || len(rules.Running(next, seen, rules.CapabilityCluster)) > 0 {
		return nil
	}
	var assigned []string
	for _, id := range next.NodeIDs() {
		if next.Nodes[id].GetState() == clusterv1.NodeState_NODE_STATE_UP && rules.Provided(next, next.Nodes[id], rules.CapabilityCluster) {
			assigned = append(assigned, id)
		}
	}
	return []string{fmt.Sprintf("without the curator of node %s none would be left that is known to run: it is assigned to %s as well, which does not report that it is ready; "+
		"wait until it does (`reeve node list`), or see why not (`reeve node status %s`)", node, few(assigned), assigned[0])}
}
