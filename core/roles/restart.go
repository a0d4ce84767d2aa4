package roles

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// NotDesiredError says that a role is not one that the node should run.
type NotDesiredError struct {
	Role string
	// Desired are the roles that the node should run, sorted.
	Desired []string
}

func (e *NotDesiredError) Error() string {
	there := "it should run none"
	if len(e.Desired) > 0 {
		there = "it should run " + strings.Join(e.Desired, ", ")
	}
	return fmt.Sprintf("roles: this node is not to run a role %q; %s", e.Role, there)
}

// ErrStopping says that the core is about to end.
var ErrStopping = errors.New("roles: the core of this node is stopping")

// Restart stops the instance of a role as for any other stop, and starts the role again at once, whatever state it is in: one that is Failed or waits in
// Backoff is tried again and has its whole crash budget back, which is on disk when Restart returns. A role that is Blocked stays so, since what it
// waits for is the same. It returns when that has begun, with the ID of the instance that is stopped; empty: none runs. What becomes of
// it is in Instances.
//
// With dryRun it says what it would do and changes nothing. A *NotDesiredError names the roles that there are; ErrStopping comes while Run ends.
func (r *Reconciler) Restart(ctx context.Context, role string, dryRun bool) (instanceID string, err error) {
	return r.restart(ctx, role, dryRun, "by an operator")
}

// Replace is Restart for the core itself. why follows "is restarted" and says what for.
func (r *Reconciler) Replace(ctx context.Context, role, why string) error {
	_, err := r.restart(ctx, role, false, why)
	return err
}

func (r *Reconciler) restart(ctx context.Context, role string, dryRun bool, why string) (instanceID string, err error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("roles: restart %s: %w", role, err)
	}
	a, err := r.find(role)
	if err != nil {
		return "", err
	}
	entries, _ := r.board.entries.Get()
	instanceID = entries[role].status.GetInstanceId()
	if dryRun {
		return instanceID, nil
	}
	if a.history.clear() {
		r.replan()
	}
	a.record(info, eventRestarted, instanceID, "is restarted "+why)
	a.log.Info("restarted", "instance", instanceID, "why", why)
	a.orders.Update(func(o order) order { return order{n: o.n + 1} })
	return instanceID, nil
}

// find returns the actor of a desired role.
func (r *Reconciler) find(role string) (*actor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil, ErrStopping
	}
	desired := make(map[string]*actor)
	for name, a := range r.actors {
		if newest, _ := a.target.Get(); newest.desired != nil {
			desired[name] = a
		}
	}
	if a, ok := desired[role]; ok {
		return a, nil
	}
	return nil, &NotDesiredError{Role: role, Desired: slices.Sorted(maps.Keys(desired))}
}
