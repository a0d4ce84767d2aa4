package node

import (
	"context"
	"errors"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// adopted are the instances that an earlier core launched and that go on.
type adopted []*plugin.Instance

func adopt(ctx context.Context, launcher *plugin.Launcher) (adopted, error) {
	instances, err := launcher.Adopt(ctx)
	return instances, err
}

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

// letGo lets go of the instances, which no reconciler has taken over. A core that cannot start is no reason to stop them; one that was asked to stop
// meanwhile stops them.
func (a adopted) letGo(ctx context.Context) end {
	stop := ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrLeave)
	done := make(chan struct{})
	for _, instance := range a {
		go func() {
			defer func() { done <- struct{}{} }()
			if stop {
				_ = instance.StopWith(context.WithoutCancel(ctx), 0, rolev1.StopReason_STOP_REASON_NODE) // what is left is told in the log, and is for the next core
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
