package roles

import (
	"context"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// sandboxed is an instance that can say what confines it.
type sandboxed interface{ Sandbox() *nodev1.Sandbox }

func sandboxOf(instance Running) *nodev1.Sandbox {
	if s, ok := instance.(sandboxed); ok {
		return s.Sandbox()
	}
	return nil
}

// reasoned is an instance that is told why it is stopped.
type reasoned interface {
	StopWith(ctx context.Context, grace time.Duration, reason rolev1.StopReason) error
}

func stopWith(ctx context.Context, instance Running, grace time.Duration, reason rolev1.StopReason) error {
	if r, ok := instance.(reasoned); ok {
		return r.StopWith(ctx, grace, reason)
	}
	return instance.Stop(ctx, grace)
}

// stopReason is why the instance is stopped, as the role is told: what it leaves on the machine may depend on it.
func (a *actor) stopReason() rolev1.StopReason {
	switch {
	case a.seen.desired == nil && !a.r.ending():
		return rolev1.StopReason_STOP_REASON_REMOVED
	case a.seen.desired == nil, !a.seen.run:
		return rolev1.StopReason_STOP_REASON_NODE
	}
	return rolev1.StopReason_STOP_REASON_RESTART
}

// tierOf is how far the sandbox of a role is open: of the instance, or of what it would be launched with.
func tierOf(of *plugin.Remit, d *DesiredRole, role string) clusterv1.Tier {
	var grants *clusterv1.RoleGrants
	switch {
	case of != nil && of.Debugged:
		return clusterv1.Tier_TIER_PRIVILEGED
	case of != nil:
		grants = of.Grants
	case d == nil || d.Plugin == nil:
		return clusterv1.Tier_TIER_UNSPECIFIED
	default:
		grants = remit.ForRole(d.Plugin.GetGrants(), role)
	}
	allowed, _ := remit.Of(grants.GetGrants()) // what is wrong in it allows nothing
	return allowed.Tier()
}
