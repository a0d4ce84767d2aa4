package node

import (
	"context"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
)

// disowned stops what still runs on a node that its cluster has removed, and erases the node's keys. If this core is stopped meanwhile, the next one goes on. From then on
// the node only says that it was removed.
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
		n.log.Error("cannot erase all that the node has of its former cluster; trying again", "error", err, "again", closeGrace)
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
