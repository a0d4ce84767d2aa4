package unseal

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Restore is the snapshot that a node is restored of.
type Restore struct {
	// ClusterID is the cluster in it.
	ClusterID string
	// Snapshot tells it from others: the SHA-256 of its payload.
	Snapshot string
	// Taken is when it was taken, for people.
	Taken time.Time
}

// RestoredError says that the node was made of this very snapshot, and is a member since.
type RestoredError struct {
	NodeID string
	// Taken is when the snapshot was taken.
	Taken time.Time
}

func (e *RestoredError) Error() string {
	return fmt.Sprintf("unseal: node %s was restored from this snapshot already (taken %s): start reeved; to go back to the snapshot again, use an empty machine", e.NodeID, e.Taken.UTC().Format(time.RFC3339))
}

// OccupiedError says that there is something where a node is to be restored.
type OccupiedError struct {
	// System is the system directory, NodeID and ClusterID are the node there.
	System, NodeID, ClusterID string
}

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("unseal: %s holds node %s of cluster %s: a node is restored on empty directories only. Use another machine, or move the directories of that node away", e.System, e.NodeID, e.ClusterID)
}

// UnfinishedError says that a node was not restored to the end.
type UnfinishedError struct {
	// NodeID and ClusterID are the node and the cluster, and Snapshot is the SHA-256 of the payload of the snapshot.
	NodeID, ClusterID, Snapshot string
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("unseal: node %s is being restored from a snapshot of cluster %s, and is no member yet: run `reeved restore` again with the same snapshot (the SHA-256 of its payload is %s), "+
		"which goes on; reeved is started after that", e.NodeID, e.ClusterID, e.Snapshot)
}

// CheckRestore fails with *OccupiedError, *RestoredError, or another error that names what is there, unless the node's directories are empty or hold a node whose restore from the same snapshot was
// begun and has not ended. With no snapshot it fails with *UnfinishedError if they hold a node that was not restored to the end. It changes nothing.
func CheckRestore(parameters *nodev1.Parameters, mark *params.Mark, restore *Restore, again bool) error {
	layout, err := LayoutOf(parameters)
	if err != nil {
		return err
	}
	if !fresh(layout) || there(layout.Disowned()) {
		head, err := seal.NewStore(layout.Configuration(), nil).Head()
		switch {
		case restore == nil && (err != nil || head == nil):
			return nil // whoever opens it says what is wrong
		case err != nil:
			return err
		case head == nil:
			return fmt.Errorf("unseal: %s holds what is left of a node: a node is restored on empty directories only. Move it away", layout.System)
		}
		return checkRestored(head, layout.System, restore)
	}
	if restore == nil {
		return nil
	}
	consumed, err := params.OpenConsumed(layout.Consumed())
	if err != nil {
		return err
	}
	if !again {
		if err := consumed.Check(parameters, ""); err != nil {
			return err
		}
		if err := mark.Check(parameters, ""); err != nil {
			return err
		}
	}
	kind, err := kindOf(parameters, layout, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	if kind("").Describe().Kind == storage.LUKS {
		return nil // the device is looked at before anything is made
	}
	return volume.CheckEmpty(layout.Data)
}

// checkRestored compares a node with the snapshot that is to be restored, or with none.
func checkRestored(head *seal.Head, system string, restore *Restore) error {
	switch {
	case restore == nil && head.Restored != "" && head.Phase.Before(seal.Member):
		return &UnfinishedError{NodeID: head.NodeID, ClusterID: head.ClusterID, Snapshot: head.Restored}
	case restore != nil && head.Restored != "" && head.Restored != restore.Snapshot && head.Phase.Before(seal.Member):
		return fmt.Errorf("another snapshot was begun to be restored: %w", &UnfinishedError{NodeID: head.NodeID, ClusterID: head.ClusterID, Snapshot: head.Restored})
	case restore != nil && head.Restored != restore.Snapshot:
		return &OccupiedError{System: system, NodeID: head.NodeID, ClusterID: head.ClusterID}
	case restore != nil && !head.Phase.Before(seal.Member):
		return &RestoredError{NodeID: head.NodeID, Taken: restore.Taken}
	}
	return nil
}
