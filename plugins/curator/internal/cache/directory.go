package cache

import (
	"cmp"
	"slices"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// directoryOf makes the directory, but for its revision: the nodes that are members, also those that leave and are not gone yet, with what they reported
// of the roles that are assigned to them.
func directoryOf(state *store.State) *hostv1.Directory {
	directory := new(hostv1.Directory)
	for _, id := range state.NodeIDs() {
		record := state.Nodes[id]
		switch record.GetState() {
		case clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
		default:
			continue
		}
		status := state.Statuses[id]
		node := &hostv1.DirectoryNode{
			NodeId:    id,
			Addresses: status.GetAddresses(),
			Healthy:   state.Alive[id],
			Labels:    record.GetLabels(),
		}
		for _, instance := range status.GetInstances() {
			// A node says what it likes of itself: it is shown with the roles that it was given only.
			if !slices.ContainsFunc(record.GetRoles(), func(assignment *clusterv1.RoleAssignment) bool { return assignment.GetRole() == instance.GetRole() }) {
				continue
			}
			node.Roles = append(node.Roles, &hostv1.DirectoryRole{
				Role:      instance.GetRole(),
				State:     instance.GetState(),
				Endpoints: instance.GetEndpoints(),
				Values:    instance.GetValues(),
			})
		}
		slices.SortFunc(node.Roles, func(a, b *hostv1.DirectoryRole) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
		directory.Nodes = append(directory.Nodes, node)
	}
	return directory
}
