package unseal

import (
	"context"
	"slices"
	"time"

	"github.com/reeveproject/reeve/core/cluster"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// tryAgain is the time between two tries to save what the room follows.
const tryAgain = 5 * time.Second

// Incarnation is this start of the core. It is not set before Raise has saved its number.
func (r *Room) Incarnation() *event.Value[*clusterv1.Incarnation] { return &r.started }

// Follow saves the number of this start, and then applies the cluster's policy for the sources of the CUK, until the context ends. What it cannot save it
// tries again. The volume must be open.
func (r *Room) Follow(ctx context.Context, view *event.Value[*cluster.View]) {
	views := view.Watch()
	raised, applied := false, false
	var last []string
	for {
		var again <-chan time.Time
		if !raised {
			if _, err := r.Raise(); err != nil {
				r.config.Log.Error("cannot save the number of this start of the core, and calls no curator before; trying again", "error", err, "again", tryAgain)
				again = time.After(tryAgain)
			} else {
				raised = true
			}
		}
		// A curator that is older than the policy says nothing of it.
		if now, _ := views.Latest(); now != nil && now.Policy != nil && (!applied || !slices.Equal(last, now.Policy.GetCukSources())) {
			sources := now.Policy.GetCukSources()
			if err := r.Allow(ctx, sources); err == nil {
				last, applied = sources, true
			} else if ctx.Err() == nil {
				r.config.Log.Error("cannot apply the cluster's policy for the sources of the CUK; trying again", "sources", sources, "error", err, "again", tryAgain)
				again = time.After(tryAgain)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-views.Changed():
		case <-again:
		}
	}
}
