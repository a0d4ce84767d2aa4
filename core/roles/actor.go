package roles

import (
	"context"
	"errors"
	"fmt"
	"time"

	expbackoff "github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// actor looks after one role. All but target, orders, manifest and history belongs to the goroutine of run.
type actor struct {
	r    *Reconciler
	role string
	log  hclog.Logger
	// target is the role's part of the newest plan. It is set before run begins.
	target *event.Value[verdict]
	// orders counts how often somebody asked for a restart.
	orders *event.Value[order]
	// manifest is the newest that an instance of the role may have been launched with. It belongs to the reconciler.
	manifest *rolev1.RoleManifest
	history  *history

	seen    verdict                 // the newest target that the actor has looked at
	targets *event.Watcher[verdict] // tells of a newer one
	ordered *event.Watcher[order]

	instance  Running // nil while none runs
	launched  verdict // what instance was launched for
	begun     time.Time
	started   time.Time
	closeHost func()
	health    *health
	wasReady  bool
	// readySince is when the instance became Ready; zero: it is not Ready. It outlasts attend, which returns at every new plan.
	readySince time.Time
	// renew says that the instance is to be stopped since somebody asked for a restart, for the reason in why; failing, if not nil, that it is to be ended for a failure.
	renew   bool
	why     string
	failing *failing
	// debug is the process that is to be the next instance; nil: one is launched.
	debug *plugin.Debugged
	// left says that the last instance was left running.
	left bool
	// remains is with what error the last instance stopped: it may have left something on the machine. "": with none.
	remains string
	// works is the digest of the version that did its work when it was last seen, of those that are not on trial; "": none.
	works string
	// trial is not nil while what is launched, or runs, is a version on trial.
	trial *trial

	backoff  *expbackoff.ExponentialBackOff
	fallen   string // the fingerprint of what ended by itself and is to be started again; "": nothing is
	cause    string // why it ended
	nextTry  time.Time
	restarts uint32
	// hopeless is the retry of what is not tried again until something changes, for the reason in cause.
	hopeless string

	last entry // what was last shown

	// What events have told of already.
	news            *news
	blockedTold     bool
	notLaunchedTold bool
	plannedTold     string
}

func newActor(r *Reconciler, role string) *actor {
	c := r.config
	log := c.Log.With("role", role)
	return &actor{
		r: r, role: role, log: log,
		target: new(event.Value[verdict]), orders: event.New(order{}), history: openHistory(&c, role, log), news: newNews(),
		backoff: &expbackoff.ExponentialBackOff{
			InitialInterval: c.BackoffInitial, MaxInterval: c.BackoffMax, Multiplier: 2, RandomizationFactor: c.BackoffJitter,
		},
	}
}

// run takes one step after another until the role is no longer desired and nothing of it is left. Every step returns when there is
// something new to look at.
func (a *actor) run() {
	a.targets, a.ordered = a.target.Watch(), a.orders.Watch()
	_, _ = a.ordered.Latest()
	for {
		a.look()
		switch {
		case a.instance != nil:
			a.attend()
		case a.seen.desired == nil:
			if a.retire() {
				return
			}
		case !a.seen.run:
			a.show(shown{state: a.seen.state, reason: a.seen.reason})
			a.tellPlanned()
			a.wait(nil, 0)
		case a.seen.gate != "":
			a.show(shown{state: blocked, reason: a.seen.gate})
			a.wait(nil, 0)
		case a.hopeless != "":
			a.show(shown{state: failed, reason: a.cause})
			a.wait(nil, 0)
		case a.history.gaveUp(a.seen.fingerprint):
			a.show(shown{state: failed, reason: a.givenUpReason()})
			a.wait(nil, 0)
		case a.fallen != "" && a.fallen != a.seen.fingerprint:
			// What ended is not what is wanted now.
			a.fallen = ""
			a.backoff.Reset()
		case a.fallen != "" && time.Now().Before(a.nextTry):
			a.show(shown{state: backoff, reason: a.cause, nextTry: a.nextTry})
			a.wait(nil, max(time.Until(a.nextTry), 1))
		default:
			a.start()
		}
	}
}

// look takes notice of the newest target and of orders, if there are any that have not been seen.
func (a *actor) look() {
	select {
	case <-a.targets.Changed():
		a.seen, _ = a.targets.Latest()
		a.history.save() // the plan may have changed it
		if a.hopeless != a.seen.retry {
			a.hopeless = ""
		}
	default:
	}
	select {
	case <-a.ordered.Changed():
		newest, _ := a.ordered.Latest()
		a.debug, a.why = newest.debug, newest.why
		a.hopeless, a.fallen = "", ""
		if a.history.clear() { // again: it may have failed once more in between
			a.r.replan()
		}
		a.backoff.Reset()
		a.renew = a.instance != nil
	default:
	}
}

// wait returns when there is a new target or order, when changed does, or when the time is up, if there is one.
func (a *actor) wait(changed <-chan struct{}, most time.Duration) {
	if left := a.tellBlocked(); left > 0 && (most <= 0 || left < most) {
		most = left
	}
	var over <-chan time.Time
	if most > 0 {
		over = time.After(most)
	}
	for {
		select {
		case <-a.targets.Changed():
		case <-a.ordered.Changed():
		case <-changed:
		case <-over:
		case <-a.late():
			if !a.pardon() {
				continue
			}
		}
		return
	}
}

// retire ends the actor of a role that is not desired any more, and reports whether it is still not.
func (a *actor) retire() bool {
	if !a.r.ending() {
		// If it is desired again, if only while this happens, it is a new one.
		a.history.remove()
	}
	return a.r.retire(a, a.seen)
}

// start waits for what the role requires, and launches an instance.
func (a *actor) start() {
	entries := a.r.board.entries.Watch()
	now, _ := entries.Latest() // there always is one
	if waits := unmet(now, a.seen.requires); waits != "" {
		a.show(shown{state: blocked, reason: waits})
		a.wait(entries.Changed(), 0)
		return
	}
	if a.fallen != "" {
		a.restarts++
		a.fallen = ""
	}
	a.show(shown{state: starting})
	if of := a.seen.desired.Plugin.GetName(); a.debug != nil && a.debug.Plugin != of {
		a.notDebugged("", fmt.Errorf("the role belongs to the plugin %q now", of))
		a.debug = nil
	}
	spec := plugin.Spec{
		Role:          a.role,
		Plugin:        a.seen.desired.Plugin,
		Configuration: a.seen.desired.Assignment.GetConfiguration(),
		Generation:    a.seen.desired.Assignment.GetGeneration(),
		Restarts:      a.restarts,
		Debug:         a.debug,
	}
	a.debug = nil // it is taken once, and may have ended by then
	ctx, cancel := context.WithCancel(context.Background())
	guarded := make(chan struct{})
	go func() {
		defer close(guarded)
		a.guard(ctx, cancel, a.seen)
	}()
	a.begun, a.trial = time.Now(), nil
	if spec.Debug == nil {
		a.beginTrial(a.seen)
	}
	id, err := a.launch(ctx, spec)
	overtaken := ctx.Err() != nil
	cancel()
	<-guarded
	switch {
	case err == nil:
		a.launched = a.seen
		a.health, a.wasReady = unasked(), true
		if spec.Debug == nil {
			a.health, a.wasReady = follow(a.instance, a.r.config.Liveness, a.r.config.Hung), false
		}
		a.news.told, a.notLaunchedTold, a.plannedTold = starting, false, ""
		a.log.Info("launched", "instance", id, "pid", a.instance.Process().PID)
		a.record(info, eventStarted, id, "was started", "plugin", spec.Plugin.GetName(), "version", spec.Plugin.GetVersion())
	case overtaken && spec.Debug != nil && !a.r.ending():
		a.notDebugged(id, errors.New("the role was changed or restarted meanwhile: start the process again and repeat the command"))
	case overtaken:
		a.log.Debug("not launched, since something else is desired now", "error", err)
	case spec.Debug != nil:
		a.notDebugged(id, err)
	default:
		a.notLaunched(id, err)
	}
}

// guard cancels a launch when the role is not to run like that any more, or is to be started anew.
func (a *actor) guard(ctx context.Context, cancel context.CancelFunc, launching verdict) {
	targets, orders := a.target.Watch(), a.orders.Watch()
	_, _ = orders.Latest()
	for {
		newest, _ := targets.Latest()
		if !newest.run || newest.fingerprint != launching.fingerprint {
			cancel()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-orders.Changed():
			cancel()
			return
		case <-targets.Changed():
		}
	}
}

// launch makes the instance. On an error there is none, but it may have had an ID.
func (a *actor) launch(ctx context.Context, spec plugin.Spec) (instanceID string, err error) {
	remit, err := a.r.config.Launcher.Prepare(ctx, spec)
	if err != nil {
		return "", &unprepared{err}
	}
	socket, closeHost, err := a.r.config.Hosts.Open(remit)
	if err != nil {
		return remit.InstanceID, &unprepared{errors.Join(err, a.r.config.Launcher.Discard(remit))}
	}
	started := time.Now()
	instance, err := a.r.config.Launcher.Launch(ctx, remit, spec, socket)
	if err != nil {
		closeHost()
		return remit.InstanceID, err
	}
	a.instance, a.closeHost, a.started = instance, closeHost, started
	return remit.InstanceID, nil
}
