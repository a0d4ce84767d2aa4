package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	expbackoff "github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// stopAgain is how long an actor waits before it tries again to stop an instance whose processes hang in the kernel.
const stopAgain = 5 * time.Second

// actor looks after one role. All but target and manifest belongs to the goroutine of run.
type actor struct {
	r    *Reconciler
	role string
	log  hclog.Logger
	// target is the role's part of the newest plan. It is set before run begins.
	target *event.Value[verdict]
	// manifest is the newest that an instance of the role may have been launched with. It belongs to the reconciler.
	manifest *rolev1.RoleManifest

	seen    verdict                 // the newest target that the actor has looked at
	targets *event.Watcher[verdict] // tells of a newer one

	instance  Running // nil while none runs
	launched  verdict // what instance was launched for
	closeHost func()

	backoff  *expbackoff.ExponentialBackOff
	fallen   string // the fingerprint of what ended by itself and is to be started again; "": nothing is
	cause    string // why it ended
	nextTry  time.Time
	restarts uint32
	// hopeless is the retry of what is not tried again until something changes, for the reason in cause.
	hopeless string

	last entry // what was last shown
}

func newActor(r *Reconciler, role string) *actor {
	c := r.config
	return &actor{
		r: r, role: role, log: c.Log.With("role", role),
		target: new(event.Value[verdict]),
		backoff: &expbackoff.ExponentialBackOff{
			InitialInterval: c.BackoffInitial, MaxInterval: c.BackoffMax, Multiplier: 2, RandomizationFactor: c.BackoffJitter,
		},
	}
}

// run takes one step after another until the role is no longer desired and nothing of it is left. Every step returns when there is
// something new to look at.
func (a *actor) run() {
	a.targets = a.target.Watch()
	for {
		a.look()
		switch {
		case a.instance != nil:
			a.attend()
		case a.seen.desired == nil:
			if a.r.retire(a, a.seen) {
				return
			}
		case !a.seen.run:
			a.show(shown{state: a.seen.state, reason: a.seen.reason})
			<-a.targets.Changed()
		case a.hopeless != "":
			a.show(shown{state: failed, reason: a.cause})
			<-a.targets.Changed()
		case a.fallen != "" && a.fallen != a.seen.fingerprint:
			// What ended is not what is wanted now.
			a.fallen = ""
			a.backoff.Reset()
		case a.fallen != "" && time.Now().Before(a.nextTry):
			a.show(shown{state: backoff, reason: a.cause, nextTry: a.nextTry})
			a.wait(a.targets.Changed(), time.Until(a.nextTry))
		default:
			a.start()
		}
	}
}

// look takes notice of the newest target, if there is one that has not been seen.
func (a *actor) look() {
	select {
	case <-a.targets.Changed():
		// Next returns at once, so no context can end before it.
		a.seen, _ = a.targets.Next(context.Background())
		if a.hopeless != a.seen.retry {
			a.hopeless = ""
		}
	default:
	}
}

func (a *actor) wait(changed <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// start waits for what the role requires, and launches an instance.
func (a *actor) start() {
	entries := a.r.board.entries.Watch()
	for {
		now, _ := entries.Next(context.Background()) // the first is there already, the next ones are waited for below
		waits := unmet(now, a.seen.requires)
		if waits == "" {
			break
		}
		a.show(shown{state: blocked, reason: waits})
		select {
		case <-a.targets.Changed():
			return
		case <-entries.Changed():
		}
	}
	if a.fallen != "" {
		a.restarts++
		a.fallen = ""
	}
	a.show(shown{state: starting})
	spec := plugin.Spec{
		Role:          a.role,
		Plugin:        a.seen.desired.Plugin,
		Configuration: a.seen.desired.Assignment.GetConfiguration(),
		Generation:    a.seen.desired.Assignment.GetGeneration(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	guarded := make(chan struct{})
	go func() {
		defer close(guarded)
		a.guard(ctx, cancel, a.seen)
	}()
	instance, closeHost, err := a.launch(ctx, spec)
	overtaken := ctx.Err() != nil
	cancel()
	<-guarded
	switch {
	case err == nil:
		a.instance, a.closeHost, a.launched = instance, closeHost, a.seen
		a.log.Info("launched", "instance", instance.Remit().InstanceID, "pid", instance.Process().PID)
	case overtaken:
		a.log.Debug("not launched, since something else is desired now", "error", err)
	case forGood(err):
		a.hopeless, a.cause = a.seen.retry, causeOf(err)
		a.log.Error("cannot run until something changes", "reason", a.cause)
	default:
		a.fell(causeOf(err), a.seen.fingerprint)
	}
}

// guard cancels a launch when the role is not to run like that any more.
func (a *actor) guard(ctx context.Context, cancel context.CancelFunc, launching verdict) {
	targets := a.target.Watch()
	for {
		newest, err := targets.Next(ctx)
		if err != nil {
			return
		}
		if !newest.run || newest.fingerprint != launching.fingerprint {
			cancel()
			return
		}
	}
}

func (a *actor) launch(ctx context.Context, spec plugin.Spec) (Running, func(), error) {
	remit, err := a.r.config.Launcher.Prepare(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	socket, closeHost, err := a.r.config.Hosts.Open(remit)
	if err != nil {
		return nil, nil, errors.Join(err, a.r.config.Launcher.Discard(remit))
	}
	instance, err := a.r.config.Launcher.Launch(ctx, remit, spec, socket)
	if err != nil {
		closeHost()
		return nil, nil, err
	}
	return instance, closeHost, nil
}

// attend follows the instance, and returns when it has ended or there is a new target. It stops the instance if that is what is due.
func (a *actor) attend() {
	unwanted := !a.seen.run || a.seen.fingerprint != a.launched.fingerprint
	statuses := a.instance.Status().Watch()
	var steady <-chan time.Time
	var isReady bool
	for {
		note := ""
		var order <-chan struct{} // tells of a change of the others while their end is waited for
		if unwanted {
			entries := a.r.board.entries.Watch()
			now, _ := entries.Next(context.Background()) // there always is one
			waits := busy(now, a.seen.stopAfter, a.seen.generation)
			if len(waits) == 0 {
				a.stop("")
				return
			}
			order = entries.Changed()
			note = "stops after " + strings.Join(waits, ", ")
		}
		status, _ := a.instance.Status().Get()
		if status.GetState() == rolev1.RoleState_ROLE_STATE_FAILED {
			a.stop(cmp.Or(status.GetReason(), "it says that it failed"))
			return
		}
		a.showStatus(status, note)
		if now := status.GetState() == rolev1.RoleState_ROLE_STATE_READY; now != isReady {
			isReady, steady = now, nil
			if now {
				steady = time.After(a.r.config.BackoffReset)
			}
		}
		select {
		case <-a.targets.Changed():
			return
		case <-a.instance.Done():
			exit := a.instance.Exit()
			a.release()
			if !unwanted {
				a.fell(exit.String(), a.launched.fingerprint)
			}
			return
		case <-statuses.Changed():
			_, _ = statuses.Next(context.Background()) // seen; the newest is read above
		case <-order:
		case <-steady:
			a.backoff.Reset()
		}
	}
}

// stop stops the instance. If the role said that it failed, it is started again later.
func (a *actor) stop(failure string) {
	id := a.instance.Remit().InstanceID
	a.show(shown{state: stopping, reason: failure})
	a.log.Info("stopping", "instance", id)
	err := a.instance.Stop(context.Background(), a.r.config.Grace)
	select {
	case <-a.instance.Done():
		if err != nil {
			a.log.Warn("the instance has stopped, but left something behind", "instance", id, "error", err)
		}
	default:
		// Nothing may take its place: it would share its data with what hangs.
		a.log.Error("the instance does not stop", "instance", id, "error", err)
		if !a.r.abandoned(err) {
			a.show(shown{state: stopping, reason: causeOf(err)})
			a.wait(a.instance.Done(), stopAgain)
			return
		}
	}
	a.release()
	if failure != "" {
		a.fell(failure, a.launched.fingerprint)
	}
}

func (a *actor) release() {
	a.closeHost()
	a.instance, a.closeHost = nil, nil
}

// fell has what ended by itself started again, later the more often it did.
func (a *actor) fell(cause, fingerprint string) {
	delay := min(a.backoff.NextBackOff(), a.r.config.BackoffMax)
	a.fallen, a.cause, a.nextTry = fingerprint, cause, time.Now().Add(delay)
	a.log.Warn("ended by itself and is started again", "reason", cause, "after", delay.Round(time.Millisecond))
}

// forGood reports whether trying again without a change is useless.
func forGood(err error) bool {
	var (
		configuration *plugin.ConfigurationError
		missing       *plugin.MissingError
		unknown       *plugin.UnknownRoleError
		version       *plugin.VersionError
	)
	return errors.As(err, &configuration) || errors.As(err, &missing) || errors.As(err, &unknown) || errors.As(err, &version)
}

// causeOf is an error as a reason beside the role's name.
func causeOf(err error) string {
	var launch *plugin.LaunchError
	if errors.As(err, &launch) {
		return "the launch failed: it " + launch.Cause()
	}
	var configuration *plugin.ConfigurationError
	if errors.As(err, &configuration) {
		return strings.TrimPrefix(configuration.Error(), fmt.Sprintf("plugin: role %s ", configuration.Role))
	}
	return strings.TrimPrefix(err.Error(), "plugin: ")
}
