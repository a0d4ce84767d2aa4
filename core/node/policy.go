package node

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/sdk/event"
)

// allowAgain is how long the node waits before it tries again to take over what the policy allows.
const allowAgain = 5 * time.Second

// followPolicy has the sources of the CUK allowed that the cluster's policy allows.
func followPolicy(ctx context.Context, log hclog.Logger, view *event.Value[*cluster.View], allow func(context.Context, []string) error) error {
	views := view.Watch()
	var last []string
	taken := false
	for {
		var again <-chan time.Time
		now := latest(views)
		// A curator that is older than the policy says nothing of it.
		if now != nil && now.Policy != nil && (!taken || !slices.Equal(last, now.Policy.GetCukSources())) {
			sources := now.Policy.GetCukSources()
			if err := allow(ctx, sources); err == nil {
				last, taken = sources, true
			} else if ctx.Err() == nil {
				log.Error("what the cluster's policy says of the sources of the CUK is not in force on this node yet", "sources", sources, "error", err, "again", allowAgain)
				again = time.After(allowAgain)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-views.Changed():
		case <-again:
		}
	}
}
