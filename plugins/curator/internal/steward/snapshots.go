package steward

import (
	"context"
	"strconv"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// askSnapshot asks a node for the snapshot that is due, and returns when to look again; 0: when the state has changed.
func (w *worker) askSnapshot(ctx context.Context, state *store.State) (again time.Duration, err error) {
	next, again := scheduled.Next(state, w.config.Now())
	if next == nil {
		return again, nil
	}
	asked := false
	call := w.config.Call("AskSnapshot", map[string]string{"node_id": next.GetNodeId(), "number": strconv.FormatUint(next.GetNumber(), 10)})
	_, err = w.config.Store.UpdateFenced(ctx, call, w.fence, func(stored *store.State) (*store.Change, error) {
		// What this curator knows may be older.
		asked = stored.Demands().GetSnapshots() != nil && stored.SnapshotTask.GetNumber() == state.SnapshotTask.GetNumber()
		if !asked {
			return nil, nil
		}
		return &store.Change{SnapshotTask: next}, nil
	})
	if err == nil && asked {
		w.config.Log.Info("a node is asked for a scheduled snapshot", "node", next.GetNodeId(), "number", next.GetNumber())
	}
	return again, err
}
