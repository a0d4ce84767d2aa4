package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// CapabilityCluster is the capability of the roles that serve the cluster API.
const CapabilityCluster = "reeve.cluster.v1"

// EndpointLocal is the endpoint at which such a role is reached from its own machine only.
const EndpointLocal = CapabilityCluster + "/local"

// guarded is what must not be lost: without them nothing of the cluster can be changed any more, its own repair included.
var guarded = []string{CapabilityCluster, store.CapabilityConsensus}

// Violation is a role on a node that cannot run as things are decided.
type Violation struct {
	Node, Role string
	// Requirement is the role or capability that is missing; empty if the catalog does not offer the role.
	Requirement string
	// Capability is what both the role and Other, another role of the node, provide. Only one role of a node may.
	Capability, Other string
	// Waiting is the roles of the node that wait for each other, this one included, if the requirement is there but can never be met.
	Waiting string
}

func (v Violation) String() string {
	switch {
	case v.Capability != "":
		return fmt.Sprintf("the roles %q and %q of node %s both provide %q, which only one role of a node may: take one of them from the node",
			v.Other, v.Role, v.Node, v.Capability)
	case v.Requirement == "":
		return fmt.Sprintf("no plugin of the catalog offers the role %q, which is assigned to node %s", v.Role, v.Node)
	case v.Waiting != "":
		return fmt.Sprintf("role %q of node %s requires %q, and none of the roles %s can start before another one of them has", v.Role, v.Node, v.Requirement, v.Waiting)
	default:
		return fmt.Sprintf("role %q of node %s requires %q, which no other role of the node is or provides", v.Role, v.Node, v.Requirement)
	}
}

// Violations returns what is wrong with the roles of all nodes.
func Violations(state *store.State) []Violation {
	var violations []Violation
	offered := make(map[string]*rolev1.RoleManifest)
	for _, plugin := range state.Plugins {
		for _, role := range plugin.GetManifest().GetRoles() {
			offered[role.GetName()] = role
		}
	}
	for _, id := range state.NodeIDs() {
		violations = append(violations, nodeViolations(state.Nodes[id], offered)...)
	}
	return violations
}

// Introduced returns the violations that a change makes: what was wrong before does not stand in the way of changes that do not make it
// worse, or it could never be repaired step by step.
func Introduced(before, after *store.State) []Violation {
	known := Violations(before)
	return slices.DeleteFunc(Violations(after), func(v Violation) bool { return slices.Contains(known, v) })
}

func nodeViolations(node *clusterv1.NodeRecord, offered map[string]*rolev1.RoleManifest) []Violation {
	var violations []Violation
	assigned := make([]*rolev1.RoleManifest, 0, len(node.GetRoles()))
	leaving := make(map[string]bool)
	for _, assignment := range node.GetRoles() {
		role, ok := offered[assignment.GetRole()]
		if !ok {
			violations = append(violations, Violation{Node: node.GetId(), Role: assignment.GetRole()})
			continue
		}
		assigned = append(assigned, role)
		leaving[role.GetName()] = assignment.GetLeaving()
	}
	// A role that leaves is in the way of another one of its kind, and is nothing to build on any more.
	violations = append(violations, rivals(node.GetId(), assigned)...)
	assigned = slices.DeleteFunc(assigned, func(role *rolev1.RoleManifest) bool { return leaving[role.GetName()] })
	for _, role := range assigned {
		for _, requirement := range role.GetRequires() {
			if !meets(assigned, role, requirement) {
				violations = append(violations, Violation{Node: node.GetId(), Role: role.GetName(), Requirement: requirement})
			}
		}
	}
	if len(violations) > 0 {
		return violations
	}
	return deadlocks(node.GetId(), assigned)
}

// rivals returns the roles that provide what another role of the node, earlier by name, provides. A node uses one provider of a capability, and
// whichever it were, the other one would be in its way.
func rivals(node string, assigned []*rolev1.RoleManifest) []Violation {
	assigned = slices.Clone(assigned)
	slices.SortFunc(assigned, func(a, b *rolev1.RoleManifest) int { return strings.Compare(a.GetName(), b.GetName()) })
	var violations []Violation
	first := make(map[string]string)
	for _, role := range assigned {
		for _, capability := range role.GetProvides() {
			other, taken := first[capability]
			switch {
			case !taken:
				first[capability] = role.GetName()
			case other != role.GetName(): // a role may name a capability twice
				violations = append(violations, Violation{Node: node, Role: role.GetName(), Capability: capability, Other: other})
			}
		}
	}
	return violations
}

// deadlocks starts the roles in the order in which the node would, and returns those that never get their turn.
func deadlocks(node string, assigned []*rolev1.RoleManifest) []Violation {
	var started []*rolev1.RoleManifest
	waiting := slices.Clone(assigned)
	for {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(role *rolev1.RoleManifest) bool {
			for _, requirement := range role.GetRequires() {
				if !meets(started, role, requirement) {
					return false
				}
			}
			started = append(started, role)
			return true
		})
		if len(waiting) == 0 {
			return nil
		}
		if len(waiting) == before {
			break
		}
	}
	var names []string
	for _, role := range waiting {
		names = append(names, role.GetName())
	}
	slices.Sort(names)
	var violations []Violation
	for _, role := range waiting {
		for _, requirement := range role.GetRequires() {
			if !meets(started, role, requirement) {
				violations = append(violations, Violation{
					Node: node, Role: role.GetName(), Requirement: requirement, Waiting: strings.Join(names, ", "),
				})
			}
		}
	}
	return violations
}

// meets reports whether one of roles, other than the one that requires it, is or provides what is required.
func meets(roles []*rolev1.RoleManifest, of *rolev1.RoleManifest, requirement string) bool {
	return slices.ContainsFunc(roles, func(role *rolev1.RoleManifest) bool {
		return role.GetName() != of.GetName() && (role.GetName() == requirement || slices.Contains(role.GetProvides(), requirement))
	})
}

// Lost returns the capabilities without which the cluster cannot be managed that a change takes from the last node that has them.
func Lost(before, after *store.State) []string {
	var lost []string
	for _, capability := range guarded {
		if provided(before, capability) && !provided(after, capability) {
			lost = append(lost, capability)
		}
	}
	return lost
}

// Lacking returns the capabilities without which a cluster cannot be managed that no node of a state has.
func Lacking(state *store.State) []string {
	return slices.DeleteFunc(slices.Clone(guarded), func(capability string) bool { return provided(state, capability) })
}

// Guarded returns the capability of a role without which the cluster cannot be managed; "": it has none.
func Guarded(state *store.State, role string) string {
	for _, capability := range guarded {
		if state.Provides(role, capability) {
			return capability
		}
	}
	return ""
}

// Provided reports whether a node has a role that provides a capability, and does not leave.
func Provided(state *store.State, node *clusterv1.NodeRecord, capability string) bool {
	return slices.ContainsFunc(node.GetRoles(), func(assignment *clusterv1.RoleAssignment) bool {
		return !assignment.GetLeaving() && state.Provides(assignment.GetRole(), capability)
	})
}

// Running returns the IDs of the nodes that have a role that provides a capability and run it, sorted, by what they have last reported to a state that was seen: that a role is
// assigned to a node does not mean that it ever came up there.
func Running(state, seen *store.State, capability string) []string {
	return slices.DeleteFunc(state.NodeIDs(), func(id string) bool {
		node := state.Nodes[id]
		if node.GetState() != clusterv1.NodeState_NODE_STATE_UP || !seen.Alive(id) {
			return true
		}
		return !slices.ContainsFunc(seen.Statuses[id].GetInstances(), func(instance *clusterv1.InstanceStatus) bool {
			ready := instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_READY || instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_DEGRADED
			return ready && state.Provides(instance.GetRole(), capability) && slices.ContainsFunc(node.GetRoles(), func(assignment *clusterv1.RoleAssignment) bool {
				return assignment.GetRole() == instance.GetRole() && !assignment.GetLeaving()
			})
		})
	})
}

func provided(state *store.State, capability string) bool {
	for _, node := range state.Nodes {
		if node.GetState() != clusterv1.NodeState_NODE_STATE_UP {
			continue
		}
		if Provided(state, node, capability) {
			return true
		}
	}
	return false
}

// RoleNames returns the names of all roles that the catalog offers, sorted.
func RoleNames(state *store.State) []string {
	var names []string
	for _, plugin := range state.Plugins {
		names = append(names, roleNames(plugin.GetManifest())...)
	}
	slices.Sort(names)
	return names
}

// Providers returns the names of the roles of the catalog that are or provide something, sorted.
func Providers(state *store.State, requirement string) []string {
	var names []string
	for _, plugin := range state.Plugins {
		for _, role := range plugin.GetManifest().GetRoles() {
			if role.GetName() == requirement || slices.Contains(role.GetProvides(), requirement) {
				names = append(names, role.GetName())
			}
		}
	}
	slices.Sort(names)
	return names
}
