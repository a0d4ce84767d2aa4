package node

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// disowned is what becomes of a node that its cluster has removed: what still runs is stopped, its keys are erased, by a later core too if this one is stopped
// meanwhile, and from then on it only says so.
func (n *node) disowned(ctx context.Context, removed *unseal.Disowned) error {
	if n.locked == nil {
		if err := n.serveLocked(); err != nil {
			return err
		}
	}
	for {
		err := n.wipe(ctx, removed)
		if err == nil {
			break
		}
		n.log.Error("what the node has of its former cluster is not all erased; it is tried again", "error", err, "again", closeGrace)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(closeGrace):
		}
	}
	n.log.Warn("the node was removed from its cluster, and all that it had of it is erased", "reason", removed.Reason)
	<-ctx.Done()
	return nil
}

// wipe stops what an earlier core left running, and erases the keys.
func (n *node) wipe(ctx context.Context, removed *unseal.Disowned) error {
	left, err := anyRecords(n.storage.Layout)
	if err != nil {
		return err
	}
	if left {
		of := storage.Volume{Kind: storage.VolumeKind(storageOf(n.room).GetKind()), ClusterID: removed.ClusterID, NodeID: removed.NodeID}
		err := n.storage.OpenVolume(of, false)
		switch {
		case err == nil:
			err = stopRecorded(ctx, n.storage, removed.NodeID, n.config.Parameters, n.log)
		case of.Kind != storage.Plain:
			// It is closed, and roles run only where it is open.
			_, err = plugin.TakeAwaySpools(n.storage.Run, removed.NodeID, n.log)
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return n.room.Wipe(ctx)
}

// storeLeaver keeps that the node has no member of the consensus store any more, once the cluster has taken the role from it and no instance of it runs.
type storeLeaver struct {
	log       hclog.Logger
	view      *event.Value[*cluster.View]
	contact   *event.Value[membership.Contact]
	instances *event.Value[roles.Instances]
	leave     func(context.Context) error
}

func (l storeLeaver) run(ctx context.Context) error {
	views, contacts, instances := l.view.Watch(), l.contact.Watch(), l.instances.Watch()
	for {
		var again <-chan time.Time
		if l.left(latest(views), latest(contacts), latest(instances)) {
			if err := l.leave(ctx); err != nil {
				l.log.Error("that the node has left the consensus store is not kept yet", "error", err, "again", rewrite)
				again = time.After(rewrite)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-views.Changed():
		case <-contacts.Changed():
		case <-instances.Changed():
		case <-again:
		}
	}
}

// latest is the present value, or the zero value if there is none yet.
func latest[T any](watcher *event.Watcher[T]) T {
	value, _ := watcher.Latest()
	return value
}

// left says whether the node is certain to have no member of the store, and to be to have none. What a role is whose plugin is not known nobody can say.
func (l storeLeaver) left(view *cluster.View, contact membership.Contact, instances roles.Instances) bool {
	if view == nil || !contact.OK {
		return false
	}
	assigned := &catalog.Assignment{Roles: view.Node.GetRoles(), Plugins: view.Plugins}
	for _, role := range assigned.Roles {
		if _, manifest := assigned.Find(role.GetRole()); manifest == nil || catalog.Provides(manifest, roles.CapabilityConsensus) {
			return false
		}
	}
	for _, instance := range instances {
		if instance.Process != nil && (instance.Remit == nil || catalog.Provides(instance.Remit.Manifest, roles.CapabilityConsensus)) {
			return false
		}
	}
	return view.Node.GetState() == clusterv1.NodeState_NODE_STATE_UP || view.Node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
}

// followRemoval tells membership that the cluster has removed the node, once a curator has said so.
func (w *whole) followRemoval(ctx context.Context) error {
	removed, err := w.client.Removed().Wait(ctx, func(r *cluster.Removed) bool { return r != nil })
	if err != nil {
		return nil
	}
	w.removed.Set(&membership.RemovedError{NodeID: w.opened.Configuration.NodeID(), Reason: removed.Reason})
	return nil
}
