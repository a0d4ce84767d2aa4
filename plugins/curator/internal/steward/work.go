package steward

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// tend does what can be done in a state. It returns when to look at the same state again.
func (w *worker) tend(ctx context.Context, state *store.State) (again time.Duration, err error) {
	for _, id := range state.NodeIDs() {
		if len(left(state, id)) > 0 {
			if err := w.takeOut(ctx, id); err != nil {
				return 0, err
			}
		}
	}
	for _, id := range state.NodeIDs() {
		if !decommissioning(state, id) || state.Alive(id) {
			delete(w.silent, id)
		}
		if !ended(state, id) {
			continue
		}
		rest := w.silence(state, id)
		if idle(state.Statuses[id]) || rest == 0 {
			if err := w.finish(ctx, id, rest == 0); err != nil {
				return 0, err
			}
		} else if !state.Alive(id) && (again == 0 || rest < again) {
			again = rest
		}
	}
	// The sweep comes first: where the store is full it makes room, and nobody can be asked for a snapshot.
	for _, task := range []func(context.Context, *store.State) (time.Duration, error){w.sweep, w.askSnapshot} {
		rest, err := task(ctx, state)
		if err != nil {
			return 0, err
		}
		if rest > 0 && (again == 0 || rest < again) {
			again = rest
		}
	}
	return again, nil
}

// sweepEvery is how often certificates are removed that have expired, and tombstones that are not kept any more.
const sweepEvery = time.Hour

// sweep removes certificates that have expired and tombstones that are not kept any more, now and then, and returns when it is due again.
func (w *worker) sweep(ctx context.Context, state *store.State) (again time.Duration, err error) {
	if rest := sweepEvery - time.Since(w.swept); !w.swept.IsZero() && rest > 0 {
		return rest, nil
	}
	swept, err := w.config.Store.SweepIssued(ctx, w.config.Now())
	if err != nil {
		return 0, err
	}
	// A record that is damaged keeps tombstones from being removed until it is repaired: that is tried again when the next sweep is due.
	w.swept = time.Now()
	w.config.Log.Debug("certificates that have expired are removed", "certificates", swept)
	if err := w.forget(ctx, state); err != nil {
		return 0, err
	}
	return sweepEvery, nil
}

// left returns the assignments of a node whose role was to leave and has left.
func left(state *store.State, id string) (roles []string) {
	for _, assignment := range state.Nodes[id].GetRoles() {
		if assignment.GetLeaving() && state.Left(id) {
			roles = append(roles, assignment.GetRole())
		}
	}
	return roles
}

func decommissioning(state *store.State, id string) bool {
	return state.Nodes[id].GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
}

// ended reports whether a node is being decommissioned and has no role any more.
func ended(state *store.State, id string) bool {
	return decommissioning(state, id) && len(state.Nodes[id].GetRoles()) == 0
}

// idle reports whether a node has said that nothing runs on it.
func idle(status *clusterv1.NodeStatus) bool {
	return status != nil && !slices.ContainsFunc(status.GetInstances(), func(instance *clusterv1.InstanceStatus) bool {
		switch instance.GetState() {
		case hostv1.InstanceState_INSTANCE_STATE_STOPPED, hostv1.InstanceState_INSTANCE_STATE_BLOCKED,
			hostv1.InstanceState_INSTANCE_STATE_FAILED, hostv1.InstanceState_INSTANCE_STATE_BACKOFF:
			return instance.GetPid() != 0
		}
		return true
	})
}

// silence returns for how long a node must stay silent yet to count as one on which nothing runs. It is this curator's own clock that runs, from when it first saw it.
func (w *worker) silence(state *store.State, id string) time.Duration {
	if state.Alive(id) {
		return w.config.Silence
	}
	since, known := w.silent[id]
	if !known {
		since = time.Now()
		w.silent[id] = since
	}
	return max(0, w.config.Silence-time.Since(since))
}

// takeOut takes the assignments out of a node's record whose role has left. What they keep there goes with them: a member that has left the consensus store is of no use any
// more, and in the way of another one.
func (w *worker) takeOut(ctx context.Context, id string) error {
	call := w.config.Call("RoleLeft", map[string]string{"node_id": id})
	changed := false
	_, err := w.config.Store.UpdateFenced(ctx, call, w.fence, func(state *store.State) (*store.Change, error) {
		roles := left(state, id)
		if changed = len(roles) > 0; !changed {
			return nil, nil
		}
		after := proto.CloneOf(state.Nodes[id])
		after.Generation++
		after.Roles = slices.DeleteFunc(after.Roles, func(assignment *clusterv1.RoleAssignment) bool { return slices.Contains(roles, assignment.GetRole()) })
		after.WipedRoles = append(after.WipedRoles, roles...)
		slices.Sort(after.WipedRoles)
		after.WipedRoles = slices.Compact(after.WipedRoles)
		return &store.Change{Nodes: []*clusterv1.NodeRecord{after}}, nil
	})
	if err == nil && changed {
		w.config.Log.Info("the consensus store has let the member of a node go, and its role ends", "node", id)
	}
	return err
}

// finish makes a node Decommissioned on which nothing runs any more, as it has said itself, or of which that is assumed since it has been silent for so long.
func (w *worker) finish(ctx context.Context, id string, silent bool) error {
	// What a node said last is none of the records that decisions compare, and may be newer in the store than in the cache.
	stored, err := w.config.Store.ReadCluster(ctx)
	if err != nil {
		return err
	}
	if stored.Alive(id) {
		silent = false
	}
	if !silent && !idle(stored.Statuses[id]) {
		return nil
	}
	changed := false
	call := w.config.Call("NodeDecommissioned", map[string]string{"node_id": id})
	_, err = w.config.Store.UpdateFenced(ctx, call, w.fence, func(state *store.State) (*store.Change, error) {
		if changed = ended(state, id); !changed {
			return nil, nil
		}
		after := proto.CloneOf(state.Nodes[id])
		after.Generation++
		after.State, after.Since = clusterv1.NodeState_NODE_STATE_DECOMMISSIONED, timestamppb.New(w.config.Now())
		return &store.Change{Nodes: []*clusterv1.NodeRecord{after}}, nil
	})
	if err == nil && changed {
		w.config.Log.Info("a node is decommissioned", "node", id, "silent", silent)
	}
	return err
}
