package roles

import (
	"context"
	"errors"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Reconciler makes what runs be what should run.
type Reconciler struct {
	config Config
	board  *board
	group  sync.WaitGroup

	mu         sync.Mutex
	desired    Desired // as it was last said
	generation uint64
	actors     map[string]*actor
	begun      bool
	closing    bool
	leaving    bool
	problems   []error
	// barred are roles that must not run whatever is desired, and why; see Bar.
	barred map[string]string
}

// New returns a reconciler that has done nothing yet, and shows the instances that it begins with.
func New(config Config) *Reconciler {
	config.defaults()
	r := &Reconciler{config: config, board: newBoard(), actors: make(map[string]*actor), barred: make(map[string]string)}
	r.adopt()
	return r
}

// Instances is the state of every role that is desired or still runs; before Run, of what was adopted.
func (r *Reconciler) Instances() *event.Value[Instances] { return r.board.instances }

// Capabilities is who provides what; of what was adopted the names of the roles alone, before Run.
func (r *Reconciler) Capabilities() *event.Value[Capabilities] { return r.board.capabilities }

// Run works until the context ends. It then stops all instances, dependents first, and returns when none is left: with nil, or with what could
// not be stopped. If the cause is ErrLeave it leaves them running. It may be called once.
func (r *Reconciler) Run(ctx context.Context) error {
	r.reopen()
	watcher := r.config.Desired.Watch()
	for {
		desired, err := watcher.Next(ctx)
		if err != nil {
			break
		}
		r.apply(desired, false)
	}
	r.mu.Lock()
	r.leaving = errors.Is(context.Cause(ctx), ErrLeave)
	r.mu.Unlock()
	r.apply(Desired{}, true)
	r.group.Wait()
	return errors.Join(r.problems...)
}

// apply makes a plan of what is desired from now on.
func (r *Reconciler) apply(desired Desired, closing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.desired = desired
	r.closing = r.closing || closing
	r.plan()
}

// replan makes another plan of the same, since something else has changed of which a plan depends: which version of a plugin is in force, or what is
// barred.
func (r *Reconciler) replan() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun && !r.closing {
		r.plan()
	}
}

// plan gives every actor its part of a new plan, and makes the actors that are missing.
func (r *Reconciler) plan() {
	r.generation++
	r.begin(r.desired)
	present := make(map[string]*rolev1.RoleManifest)
	for role, a := range r.actors {
		present[role] = a.manifest
	}
	plan := makePlan(r.generation, r.inForce(), present)
	r.board.plan(plan)
	for role, v := range plan {
		a := r.actors[role]
		if v.manifest != nil {
			a.manifest = v.manifest
		}
		v.leave = r.leaving && !a.manifest.GetEndsWithCore()
		_, started := a.target.Get()
		a.target.Set(v)
		if !started {
			r.group.Go(a.run)
		}
	}
}

// begin is done before anything is started: what is kept of the failures of roles is made to be about those that are desired.
func (r *Reconciler) begin(desired Desired) {
	if r.begun || r.closing {
		return
	}
	r.begun = true
	dir := r.config.FailuresDir
	if dir == "" {
		return
	}
	names := make(map[string]bool)
	for _, d := range desired.Roles {
		names[d.Assignment.GetRole()] = true
	}
	err := openHistories(dir)
	if err == nil {
		err = sweepHistories(dir, names)
	}
	if err != nil {
		r.config.Log.Error("the directory of the failures of roles is not as it should be; what is kept of them may be lost or too old", "error", err)
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
	switch {
	case a.left:
		r.board.idle(a.role, seen.generation)
	case a.remains != "" && !r.closing:
		// Who took the role away hears that it is not gone without a trace.
		r.board.put(a.role, entry{idle: seen.generation, status: &clusterv1.InstanceStatus{
			Role: a.role, State: stopped, Reason: "the role was removed from this node; it ended with an error: " + strings.ReplaceAll(a.remains, "\n", "; "), Since: timestamppb.Now(),
		}})
	default:
		r.board.remove(a.role)
	}
	return true
}

// ending reports whether the node is shutting down, in which case no role is desired and all will be again.
func (r *Reconciler) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
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
