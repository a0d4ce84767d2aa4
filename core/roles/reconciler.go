package roles

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Defaults of Config.
const (
	// DefaultBackoffInitial is short, because most ends are accidents: a role that was killed is back before anybody has looked.
	DefaultBackoffInitial = 100 * time.Millisecond
	// DefaultBackoffMax is long enough that a role which cannot start costs the node nothing, and short enough for an operator to wait for.
	DefaultBackoffMax = 30 * time.Second
	// DefaultBackoffReset is how long a role must be Ready for its next end to count as the first again.
	DefaultBackoffReset = 30 * time.Second
	// DefaultBackoffJitter spreads the restarts of roles that fell together, as a part of the interval to either side.
	DefaultBackoffJitter = 0.2
)

// Config is what a Reconciler needs.
type Config struct {
	Log      hclog.Logger
	Launcher Launcher
	Hosts    HostSockets
	// Desired is what should run. Nothing is started before its first value, and nothing is stopped either: there is nothing.
	Desired *event.Value[Desired]

	// The time before a role that ended is started again: from BackoffInitial, doubling, to BackoffMax, each less or more by up to
	// BackoffJitter (a part of it; negative: none). It begins anew after BackoffReset in Ready, and with every change of what is desired. Zero values
	// mean the defaults.
	BackoffInitial, BackoffMax, BackoffReset time.Duration
	BackoffJitter                            float64
	// Grace is how long a role may take to stop; zero: plugin.DefaultGrace.
	Grace time.Duration
}

func (c *Config) defaults() {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&c.BackoffInitial, DefaultBackoffInitial},
		{&c.BackoffMax, DefaultBackoffMax},
		{&c.BackoffReset, DefaultBackoffReset},
		{&c.Grace, plugin.DefaultGrace},
	} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	switch {
	case c.BackoffJitter == 0:
		c.BackoffJitter = DefaultBackoffJitter
	case c.BackoffJitter < 0:
		c.BackoffJitter = 0
	}
}

// Reconciler makes what runs be what should run.
type Reconciler struct {
	config Config
	board  *board
	group  sync.WaitGroup

	mu         sync.Mutex
	generation uint64
	actors     map[string]*actor
	closing    bool
	problems   []error
}

// New returns a reconciler that has done nothing yet.
func New(config Config) *Reconciler {
	config.defaults()
	return &Reconciler{config: config, board: newBoard(), actors: make(map[string]*actor)}
}

// Instances is the state of every role that is desired or still runs; empty before Run.
func (r *Reconciler) Instances() *event.Value[Instances] { return r.board.instances }

// Capabilities is who provides what; empty before Run.
func (r *Reconciler) Capabilities() *event.Value[Capabilities] { return r.board.capabilities }

// Run works until the context ends. It then stops all instances, dependents first, and returns when none is left: with nil, or with what could
// not be stopped. It may be called once.
func (r *Reconciler) Run(ctx context.Context) error {
	watcher := r.config.Desired.Watch()
	for {
		desired, err := watcher.Next(ctx)
		if err != nil {
			break
		}
		r.apply(desired, false)
	}
	r.apply(Desired{}, true)
	r.group.Wait()
	return errors.Join(r.problems...)
}

// apply gives every actor its part of a new plan, and makes the actors that are missing.
func (r *Reconciler) apply(desired Desired, closing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.closing = r.closing || closing
	present := make(map[string]*rolev1.RoleManifest)
	for role, a := range r.actors {
		present[role] = a.manifest
	}
	plan := makePlan(r.generation, desired, present)
	r.board.plan(plan)
	for role, v := range plan {
		a, ok := r.actors[role]
		if !ok {
			a = newActor(r, role)
			r.actors[role] = a
		}
		if v.manifest != nil {
			a.manifest = v.manifest
		}
		a.target.Set(v)
		if !ok {
			r.group.Go(a.run)
		}
	}
}

// retire removes the actor of a role that is not desired, unless that has changed since the actor saw it.
func (r *Reconciler) retire(a *actor, seen verdict) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if newest, _ := a.target.Get(); newest.generation != seen.generation {
		return false
	}
	delete(r.actors, a.role)
	r.board.remove(a.role)
	return true
}

// abandoned reports whether the node is shutting down, in which case an instance that cannot be stopped is a problem of Run's caller.
func (r *Reconciler) abandoned(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		r.problems = append(r.problems, err)
	}
	return r.closing
}
