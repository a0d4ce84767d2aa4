package pki

import (
	"context"
	"slices"

	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Directory returns the cluster's directory, and whether it is current. It may be stale while the node cannot reach the cluster, or until it lists this instance.
func Directory(host *role.Host) (*hostv1.Directory, bool) {
	membership, _ := host.Membership().Get()
	directory, ok := host.Directory().Get()
	return directory, ok && membership.GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_HOME && Assigned(directory, host.NodeID(), host.Role())
}

// AwaitDirectory waits for what Directory returns, as long as ctx lets it.
func AwaitDirectory(ctx context.Context, host *role.Host) (*hostv1.Directory, error) {
	if _, err := host.Membership().Wait(ctx, func(now *hostv1.Membership) bool {
		return now.GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_HOME
	}); err != nil {
		return nil, err
	}
	return host.Directory().Wait(ctx, func(now *hostv1.Directory) bool { return Assigned(now, host.NodeID(), host.Role()) })
}

// Assigned reports whether the directory says that a node has a role.
func Assigned(directory *hostv1.Directory, nodeID, role string) bool {
	return slices.ContainsFunc(directory.GetNodes(), func(node *hostv1.DirectoryNode) bool {
		return node.GetNodeId() == nodeID && slices.Contains(node.GetAssigned().GetRoles(), role)
	})
}
