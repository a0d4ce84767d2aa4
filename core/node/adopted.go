package node

import (
	"context"
	"errors"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
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
				_ = instance.Stop(context.WithoutCancel(ctx), stopGrace) // what is left is told in the log, and is for the next core
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

// stopGrace is how long a role may take that is stopped before it was looked after.
const stopGrace = 10 * time.Second
