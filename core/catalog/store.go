package catalog

import (
	"context"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// FollowStore publishes whether the node has left the consensus store: the cluster has taken the role from it, and no instance of the role runs. It ends with
// the context.
func FollowStore(ctx context.Context, view *event.Value[*cluster.View], contact *event.Value[membership.Contact], running *event.Value[roles.Instances], left *event.Value[bool]) {
	views, contacts, instances := view.Watch(), contact.Watch(), running.Watch()
	for {
		newest, _ := views.Latest()
		reached, _ := contacts.Latest()
		now, _ := instances.Latest()
		left.Set(reached.OK && leftStore(newest, now))
		select {
		case <-ctx.Done():
			return
		case <-views.Changed():
		case <-contacts.Changed():
		case <-instances.Changed():
		}
	}
}

// leftStore reports whether the node certainly has no member of the store and is to have none. A role of an unknown plugin might provide the store.
func leftStore(view *cluster.View, instances roles.Instances) bool {
	if view == nil {
		return false
	}
	assigned := &Assignment{Roles: view.Node.GetRoles(), Plugins: view.Plugins}
	for _, role := range assigned.Roles {
		if _, manifest := assigned.Find(role.GetRole()); manifest == nil || Provides(manifest, roles.CapabilityConsensus) {
			return false
		}
	}
	for _, instance := range instances {
		if instance.Process != nil && (instance.Remit == nil || Provides(instance.Remit.Manifest, roles.CapabilityConsensus)) {
			return false
		}
	}
	return view.Node.GetState() == clusterv1.NodeState_NODE_STATE_UP || view.Node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
}
