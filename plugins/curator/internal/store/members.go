package store

import (
	"fmt"
	"slices"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// StoreNodes returns the IDs of the nodes that are to have a member of the consensus store, sorted.
func (s *State) StoreNodes() []string {
	var ids []string
	for _, id := range s.NodeIDs() {
		if s.toBeMember(s.Nodes[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

// ToBeStoreMember reports whether a node is to have a member of the consensus store.
func (s *State) ToBeStoreMember(node string) bool { return s.toBeMember(s.Nodes[node]) }

// replacedMembers are the members of such nodes that are to be replaced, sorted.
func (s *State) replacedMembers() []string {
	var ids []string
	for _, node := range s.StoreNodes() {
		if member := s.Nodes[node].GetReplacedMember(); member != "" {
			ids = append(ids, member)
		}
	}
	slices.Sort(ids)
	return ids
}

// toBeMember reports whether a node is to have a member of the consensus store.
func (s *State) toBeMember(node *clusterv1.NodeRecord) bool {
	return node.GetState() == clusterv1.NodeState_NODE_STATE_UP && slices.ContainsFunc(node.GetRoles(), func(assignment *clusterv1.RoleAssignment) bool {
		return !assignment.GetLeaving() && s.Provides(assignment.GetRole(), CapabilityConsensus)
	})
}

// Provides reports whether a role of the catalog provides a capability.
func (s *State) Provides(role, capability string) bool {
	manifest, _ := s.Role(role)
	return slices.Contains(manifest.GetProvides(), capability)
}

// StoreMember returns what the consensus store has last told of the member of a node; nil: it has none.
func (s *State) StoreMember(node string) *consensusv1.StoreStateMember {
	for _, member := range s.Store.GetMembers() {
		if member.GetNodeId() == node && member.GetMemberId() != "" {
			return member
		}
	}
	return nil
}

// Left reports whether the consensus store is known to have no member of a node: it says so, and it has seen all that was decided. That it said so earlier means
// nothing, since it may have taken the node in meanwhile.
func (s *State) Left(node string) bool {
	return s.Store != nil && s.DesiredRevision != 0 && s.Store.GetDesiredRevision() >= s.DesiredRevision && s.StoreMember(node) == nil
}

// membership is a node's place in the consensus store as operators see it.
func (s *State) membership(record *clusterv1.NodeRecord) *clusterv1.StoreMembership {
	for _, member := range s.Store.GetMembers() {
		if member.GetNodeId() == record.GetId() {
			return &clusterv1.StoreMembership{
				MemberId: member.GetMemberId(), Learner: member.GetLearner(), Step: member.GetStep(), Stuck: member.GetStuck(),
				Silent: member.GetMemberId() != "" && !member.GetHealthy(), Unreached: member.GetUnreached(), Damage: member.GetDamage(),
			}
		}
	}
	if s.toBeMember(record) {
		return &clusterv1.StoreMembership{Step: "the consensus store has not taken note yet of that the node is to have a member"}
	}
	return nil
}

// checkStoreState holds what the consensus role has written against what is shown and decided by: one member a node. A member of which nobody knows the node is one that
// counts, and is nobody's.
func checkStoreState(told *consensusv1.StoreState) error {
	seen := make(map[string]bool)
	for _, member := range told.GetMembers() {
		id := member.GetNodeId()
		if id != "" && seen[id] {
			return fmt.Errorf("it has node %s twice", id)
		}
		seen[id] = true
	}
	return nil
}
