package node

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// debugging has processes that were started by hand be instances of roles, where that is allowed.
type debugging struct {
	allowed    bool
	known      *catalog.Assignment
	view       *event.Value[*cluster.View]
	launcher   *plugin.Launcher
	reconciler *roles.Reconciler
	instances  *event.Value[roles.Instances]
	// end stops an instance that is debugged.
	end func(role, instanceID, why string) error
}

// role has the process that listens on a socket be the instance of a role, or says what that would come to. Its errors are gRPC statuses, *roles.NotDesiredError or
// roles.ErrStopping.
func (d debugging) role(ctx context.Context, role, socket string, dryRun bool) (pid int, instanceID string, err error) {
	if err := d.permitted(); err != nil {
		return 0, "", err
	}
	found, err := d.launcher.Debugged(ctx, role, socket)
	if ctx.Err() != nil {
		return 0, "", status.FromContextError(ctx.Err()).Err()
	}
	if err == nil {
		instanceID, err = d.reconciler.Debug(ctx, found, dryRun)
	}
	var refused *plugin.DebugError
	if errors.As(err, &refused) {
		return 0, "", status.Error(codes.FailedPrecondition, err.Error())
	}
	if err != nil {
		return 0, "", err
	}
	return found.PID, instanceID, nil
}

// follow stops every debugged instance when the cluster's policy forbids debugging. It ends with the context.
func (d debugging) follow(ctx context.Context) error {
	views, instances := d.view.Watch(), d.instances.Watch()
	ended := make(map[string]bool)
	for {
		_, _ = views.Latest()
		now, _ := instances.Latest()
		if forbidden := d.permitted(); forbidden != nil {
			for _, i := range now {
				if id := i.Status.GetInstanceId(); i.Status.GetDebug() && !ended[id] {
					ended[id] = true
					// An error says that the role or the core ends anyway.
					_ = d.end(i.Status.GetRole(), id, status.Convert(forbidden).Message())
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-views.Changed():
		case <-instances.Changed():
		}
	}
}

// permitted says why no role of this node may be debugged.
func (d debugging) permitted() error {
	if !d.allowed {
		return status.Error(codes.FailedPrecondition, "this node does not allow debugging of roles: set `debug_roles: true` in its parameters and restart reeved; use it for development only, "+
			"since a debugged role runs in no sandbox")
	}
	var policy *clusterv1.ClusterPolicy
	if d.known != nil {
		policy = d.known.Policy
	}
	if view, ok := d.view.Get(); ok && view.Policy != nil {
		policy = view.Policy
	}
	switch {
	case policy.GetIsolation() == clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED:
		return status.Error(codes.FailedPrecondition, "the cluster's policy isolation=required forbids debugging: a debugged role runs in no sandbox")
	case policy.GetConformance() == clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED:
		return status.Error(codes.FailedPrecondition, "the cluster's policy conformance=required forbids debugging: the process was not tested")
	}
	return nil
}
