package unseal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/rmtree"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/storage"
)

// disownedVersion is the version of the format of the file that says that the node was removed.
const disownedVersion = 1

// Disowned says that the node was removed from its cluster. It is never a member of it again.
type Disowned struct {
	NodeID    string `json:"node_id"`
	ClusterID string `json:"cluster_id"`
	// Reason is what was done, by whom and when, as the cluster said.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// readDisowned returns what the file says; nil if there is none. One that is damaged was there all the same.
func readDisowned(path string) (*Disowned, error) {
	d := new(Disowned)
	switch err := storage.ReadDocument(path, disownedVersion, d); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("unseal: %s says that this node was removed from its cluster, and cannot be read (%w): start anew with an empty system directory", path, err)
	}
	return d, nil
}

// Disown keeps that the node was removed from its cluster, before anything else is done about it: whatever becomes of this core, the next one goes on with
// Wipe, and the node is never a member again.
func (r *Room) Disown(reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.disowned.Load() != nil:
		return nil
	case r.configuration == nil:
		return errLocked
	}
	next := &Disowned{NodeID: r.configuration.NodeID(), ClusterID: r.configuration.ClusterID, Reason: reason, Since: time.Now().UTC().Round(time.Second)}
	err := r.take(checkpoint.Disown, func() error {
		return storage.WriteDocument(r.config.Storage.Disowned(), disownedVersion, next, 0o600)
	})
	if err == nil {
		r.disowned.Store(next)
	}
	return err
}

// Disowned says that the node was removed from its cluster; nil: it was not. It never waits for a step that is taken.
func (r *Room) Disowned() *Disowned { return r.disowned.Load() }

// Wipe erases all that opens the volume of a node that was removed, and all by which it could prove itself, then closes the volume; one that is not encrypted
// loses what the cluster and the roles have left on it. No role may run. It may be called again after an error, and by a later core: *volume.BusyError if the
// volume is in use, *storage.VolumeError if what is there instead of one that is not encrypted is not this node's, of which nothing is erased.
func (r *Room) Wipe(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.disowned.Load() == nil {
		return errors.New("unseal: the keys of a node that was not removed from its cluster are not erased")
	}
	r.board.state(closing, "")
	err := r.wipe(ctx)
	if err != nil {
		r.board.problem(err)
		return err
	}
	r.open, r.mine, r.unkept, r.configuration = false, false, false, nil
	r.board.state(locked, "the node was removed from its cluster, and its keys are erased")
	return nil
}

func (r *Room) wipe(ctx context.Context) error {
	files := r.config.Storage
	err := r.take(checkpoint.EraseKeys, func() error {
		r.forget()
		// It is no node any more, so its parameters, with another ticket, may make the next one. Where they lie nobody may write, perhaps: then an operator says --again.
		if err := r.config.Mark.Forget(); err != nil {
			r.config.Log.Warn("cannot remove the mark that these parameters made a node: start reeved once with --again to make another one", "error", err)
		}
		var problems []error
		for _, path := range append(recovery.Files(files.Recovery()), files.Configuration(), files.Configuration()+".unreadable", files.VolumeKey(), files.CUK(), files.Incarnation()) {
			problems = append(problems, storage.Erase(path))
		}
		return errors.Join(problems...)
	})
	if err != nil {
		return err
	}
	if r.encrypted() {
		return r.take(checkpoint.CloseVolume, func() error { return r.closeKind(ctx) })
	}
	left := slices.DeleteFunc([]string{files.Identity(), filepath.Dir(files.Assignment()), files.Roles(), files.Failures(), filepath.Dir(files.Log("any"))}, func(path string) bool {
		return !there(path)
	})
	if len(left) == 0 {
		return nil
	}
	// By now somebody may have put another volume there.
	if err := r.config.Storage.OpenVolume(r.disowned.Load().volume(r.kind.Describe().Kind), false); err != nil {
		return fmt.Errorf("unseal: what is on the volume of the node that was removed is not erased, since this may be another one: %w", err)
	}
	return r.take(checkpoint.EraseData, func() error {
		var problems []error
		for _, path := range left {
			problems = append(problems, rmtree.Remove(ctx, path))
		}
		return errors.Join(problems...)
	})
}

// volume is what the node's volume says of itself.
func (d *Disowned) volume(kind storage.VolumeKind) storage.Volume {
	return storage.Volume{Kind: kind, ClusterID: d.ClusterID, NodeID: d.NodeID}
}
