package node

import (
	"context"
	"errors"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// adopted are the running instances of an earlier core.
type adopted []*plugin.Instance

func (a adopted) running() (running []roles.Running) {
	for _, instance := range a {
		running = append(running, instance)
	}
	return running
}

func (a adopted) names() (names []string) {
	for _, instance := range a {
		names = append(names, instance.Remit().Name)
	}
	return names
}

// letGo leaves the instances to the next core, or stops them if the core was asked to stop meanwhile. No reconciler has taken them over.
func (a adopted) letGo(ctx context.Context) end {
	stop := ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrLeave)
	done := make(chan struct{})
	for _, instance := range a {
		go func() {
			defer func() { done <- struct{}{} }()
			if stop {
				_ = instance.StopWith(context.WithoutCancel(ctx), 0, rolev1.StopReason_STOP_REASON_NODE) // an error is logged, and the next core tries again
			} else {
				instance.Leave()
			}
		}()
	}
	for range a {
		<-done
	}
	if stop {
		return rolesStopped
	}
	return rolesRunOn
}
