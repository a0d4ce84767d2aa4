package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Reap stops whatever a core that is gone for good left running on these directories. It needs no key: roles run only while the volume is open. If it is closed and
// nothing runs, Reap unmounts what ended instances left mounted. *storage.InUseError if a core runs.
func Reap(ctx context.Context, parameters *nodev1.Parameters, log hclog.Logger) (err error) {
	layout, err := unseal.LayoutOf(parameters)
	if err != nil {
		return err
	}
	head, err := seal.NewStore(layout.Configuration(), seal.File{}).Head()
	if err != nil || head == nil {
		// No node was ever made here, so none left anything.
		return err
	}
	held, err := storage.Open(layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	of := storage.Volume{Kind: head.VolumeKind, ClusterID: head.ClusterID, NodeID: head.NodeID}
	if err := held.OpenVolume(of, false); err != nil {
		running, takeErr := plugin.TakeAwaySpools(layout.Run, head.NodeID, log)
		if takeErr != nil {
			return fmt.Errorf("node: what roles have left in %s: %w", layout.Run, takeErr)
		}
		if !running {
			log.Info("nothing of this node is left running", "volume", "not open")
			return nil
		}
		return fmt.Errorf("node: cannot stop the roles that an earlier core left: the volume is not open: start reeved, open the volume (`reeve node unlock`), and stop reeved: %w", err)
	}
	return stopRecorded(ctx, held, head.NodeID, parameters, log)
}

// stopRecorded stops whatever an earlier core left running on an open volume.
func stopRecorded(ctx context.Context, held *storage.Storage, nodeID string, parameters *nodev1.Parameters, log hclog.Logger) (err error) {
	p, err := openPlugins(held, parameters.GetSandbox(), nodeID, time.Now(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	return p.launcher.StopRecorded(ctx)
}

// anyRecords reports whether there are records of instances.
func anyRecords(layout storage.Layout) (bool, error) {
	entries, err := os.ReadDir(filepath.Join(layout.Run, "instances"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(entries) > 0, err
}
