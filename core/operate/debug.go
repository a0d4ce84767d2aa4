package operate

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Debug makes the process that listens on a socket the instance of a role. With dryRun it only checks. It returns the process, and the instance that it replaces.
func (r *Room) Debug(ctx context.Context, role, socket string, dryRun bool) (pid int, instanceID string, err error) {
	if err := r.permitsDebug(); err != nil {
		return 0, "", err
	}
	found, err := r.Launcher.Debugged(ctx, role, socket)
	if ctx.Err() != nil {
		return 0, "", status.FromContextError(ctx.Err()).Err()
	}
	if err == nil {
		instanceID, err = r.Roles.Debug(ctx, found, dryRun)
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

// Run stops every debugged instance once the cluster's policy forbids debugging, until the context ends.
func (r *Room) Run(ctx context.Context) {
	views, instances := r.View.Watch(), r.Instances.Watch()
	ended := make(map[string]bool)
	for {
		_, _ = views.Latest()
		now, _ := instances.Latest()
		if forbidden := r.permitsDebug(); forbidden != nil {
			for _, i := range now {
				if id := i.Status.GetInstanceId(); i.Status.GetDebug() && !ended[id] {
					ended[id] = true
					// An error says that the role or the core ends anyway.
					_ = r.Roles.EndDebug(i.Status.GetRole(), id, status.Convert(forbidden).Message())
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-views.Changed():
		case <-instances.Changed():
		}
	}
}

// permitsDebug returns why no role of this node may be debugged; nil: they may.
func (r *Room) permitsDebug() error {
	if !r.AllowDebug {
		return status.Error(codes.FailedPrecondition, "this node does not allow debugging of roles: set `debug_roles: true` in its parameters and restart reeved; use it for development only, "+
			"since a debugged role runs in no sandbox")
	}
	policy := r.Policy
	if view, ok := r.View.Get(); ok && view.Policy != nil {
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
