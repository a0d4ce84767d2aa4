package management

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// staying is the roles of a node that do not leave it.
func staying(node *clusterv1.NodeRecord) []*clusterv1.RoleAssignment {
	return slices.DeleteFunc(slices.Clone(node.GetRoles()), (*clusterv1.RoleAssignment).GetLeaving)
}

// leavers returns the roles of a node that are not among those that stay, and that cannot go at once: a node runs the member of the consensus store that it has until the
// store has let it go, since the store could otherwise be without the majority that decides that it goes. The steward takes the assignments out then.
func leavers(state *store.State, before *clusterv1.NodeRecord, stay []*clusterv1.RoleAssignment) []*clusterv1.RoleAssignment {
	var leaving []*clusterv1.RoleAssignment
	for _, had := range before.GetRoles() {
		if assigned(stay, had.GetRole()) != nil || !hasMember(state, before, had) {
			continue
		}
		leaver := proto.CloneOf(had)
		leaver.Leaving = true
		leaving = append(leaving, leaver)
	}
	return leaving
}

// hasMember reports whether a node may have a member of the consensus store by one of its roles. One that leaves is taken out by the steward alone.
func hasMember(state *store.State, node *clusterv1.NodeRecord, assignment *clusterv1.RoleAssignment) bool {
	if assignment.GetLeaving() {
		return true
	}
	if !state.Provides(assignment.GetRole(), store.CapabilityConsensus) {
		return false
	}
	if state.StoreMember(node.GetId()) != nil {
		return true
	}
	// A node that was to have none has none, and otherwise it is for the store to say so.
	return slices.Contains(state.StoreNodes(), node.GetId()) && !state.Left(node.GetId())
}

// memberBy reports whether a node may have a member of the consensus store by one of some roles.
func memberBy(state *store.State, node *clusterv1.NodeRecord, roles []string) bool {
	return slices.ContainsFunc(node.GetRoles(), func(assignment *clusterv1.RoleAssignment) bool {
		return slices.Contains(roles, assignment.GetRole()) && hasMember(state, node, assignment)
	})
}

// mayHaveRoles returns why the roles of a node cannot be changed.
func mayHaveRoles(node *clusterv1.NodeRecord) error {
	switch id := node.GetId(); node.GetState() {
	case clusterv1.NodeState_NODE_STATE_STANDBY, clusterv1.NodeState_NODE_STATE_UP:
		return nil
	case clusterv1.NodeState_NODE_STATE_NEW:
		return answer.Errorf(codes.FailedPrecondition, "node %s is not approved yet, and gets its roles when it is: `reeve node approve %s`", id, id)
	case clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
		return answer.Errorf(codes.FailedPrecondition, "node %s leaves the cluster, and its roles with it: assign them to another node", id)
	default:
		return answer.Errorf(codes.FailedPrecondition, "node %s was removed from the cluster, and is never again a member of it: assign the roles to another node", id)
	}
}

func justLeft(node, role string) error {
	return answer.Errorf(codes.FailedPrecondition, "the member of node %s has just left the consensus store, and the role %s ends there: "+
		"wait until the node has it no more (`reeve node role list %s`), and add it again then", node, role, node)
}
