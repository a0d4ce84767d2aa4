package steward

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// keptTombstones is how many tombstones stay, however old they are: the newest. A node that comes back is told by its own that it was removed.
	keptTombstones = 1000
	// tombstoneAge is how long each of them stays, however many there are. No certificate of a node and no ticket is good for as long.
	tombstoneAge = 30 * 24 * time.Hour
	// forgottenAtOnce is how many are removed by one change.
	forgottenAtOnce = 100
)

// forget removes the tombstones that are not kept any more: every decision reads them, and machines that come and go would leave ever more of them.
func (w *worker) forget(ctx context.Context, state *store.State) error {
	for ids := forgettable(state, w.config.Now()); len(ids) > 0; {
		call := w.config.Call("TombstonesRemoved", map[string]string{"nodes": strconv.Itoa(len(ids))})
		removed := 0
		after, err := w.config.Store.UpdateFenced(ctx, call, w.fence, func(state *store.State) (*store.Change, error) {
			still := forgettable(state, w.config.Now())
			if removed = len(still); removed == 0 {
				return nil, nil
			}
			return &store.Change{Forgotten: still}, nil
		})
		if err != nil {
			return err
		}
		w.config.Log.Info("the tombstones of nodes are removed that left the cluster long ago", "nodes", removed)
		ids = forgettable(after, w.config.Now())
	}
	return nil
}

// forgettable returns the IDs of nodes whose tombstones are not kept any more, the oldest first, as many as one change removes.
func forgettable(state *store.State, now time.Time) (ids []string) {
	var tombstones []*clusterv1.NodeRecord
	for _, node := range state.Nodes {
		if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			tombstones = append(tombstones, node)
		}
	}
	slices.SortFunc(tombstones, func(a, b *clusterv1.NodeRecord) int {
		return cmp.Or(removedAt(a).Compare(removedAt(b)), cmp.Compare(a.GetId(), b.GetId()))
	})
	for _, node := range tombstones[:max(0, len(tombstones)-keptTombstones)] {
		if len(ids) == forgottenAtOnce || now.Sub(removedAt(node)) < tombstoneAge {
			break
		}
		ids = append(ids, node.GetId())
	}
	return ids
}

// removedAt is when a node was removed. A record that does not say so is as old as the node's last state.
func removedAt(node *clusterv1.NodeRecord) time.Time {
	if at := node.GetRemoval().GetTime(); at != nil {
		return at.AsTime()
	}
	return node.GetSince().AsTime()
}
