package roles

import (
	"cmp"
	"context"
	"strings"
	"time"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// stopAgain is how long an actor waits before it tries again to stop an instance whose processes hang in the kernel.
	stopAgain = 5 * time.Second
	// A role that does not answer is asked to stop all the same, which it may yet hear, for lostAsked, and is killed after lostGrace.
	lostAsked = time.Second
	lostGrace = 2 * time.Second
)

// unwanted reports whether the instance is to be stopped by what the actor has looked at.
func (a *actor) unwanted() bool {
	return !a.seen.run || a.seen.fingerprint != a.launched.fingerprint || a.renew
}

// attend follows the instance, and returns when it has ended or there is a new target or order. It stops the instance if that is what is due.
func (a *actor) attend() {
	if a.seen.leave && !a.debugging() {
		a.leave()
		return
	}
	unwanted := a.unwanted()
	if !unwanted && !a.debugging() {
		a.beginTrial(a.seen)
	}
	statuses := a.instance.Status().Watch()
	var steady <-chan time.Time
	late := a.late()
	for {
		note := ""
		var order <-chan struct{} // tells of a change of the others while their end is waited for
		if unwanted {
			entries := a.r.board.entries.Watch()
			now, _ := entries.Latest() // there always is one
			waits := busy(now, a.seen.stopAfter, a.seen.generation)
			if len(waits) == 0 {
				a.stop()
				return
			}
			order = entries.Changed()
			note = "stops after " + strings.Join(waits, ", ")
		}
		status, _ := statuses.Latest()
		if status.GetState() == rolev1.RoleState_ROLE_STATE_FAILED && a.failing == nil {
			a.failing = &failing{cause: cmp.Or(status.GetReason(), saysFailed)}
		}
		if a.failing != nil {
			a.stop()
			return
		}
		probation := a.followTrial(status.GetState(), unwanted)
		a.followWork(status.GetState())
		a.describeStatus(status, note)
		// Before others see the state: a role that is started because this one is Ready is started after it in the events too.
		later := a.tell()
		a.r.board.put(a.role, a.last)
		switch {
		case status.GetState() != rolev1.RoleState_ROLE_STATE_READY:
			a.readySince, steady = time.Time{}, nil
		case steady == nil:
			if a.readySince.IsZero() {
				a.readySince = time.Now()
			}
			steady = time.After(time.Until(a.readySince.Add(a.r.config.BackoffReset)))
			if !a.wasReady {
				a.wasReady = true
				a.r.config.Launched(a.role, time.Since(a.begun))
			}
		}
		if status.GetState() == rolev1.RoleState_ROLE_STATE_BLOCKED {
			a.wasReady = true // the rest of the wait is the machine's, so it is not counted as launch time
		}
		select {
		case <-a.targets.Changed():
			return
		case <-a.ordered.Changed():
			return
		case <-a.instance.Done():
			a.ended()
			return
		case wrong := <-a.health.lost:
			a.failing = &failing{cause: wrong, unresponsive: true}
		case <-statuses.Changed(): // read above
		case <-order:
		case <-later:
		case <-probation:
			if a.probationOver() {
				return
			}
		case <-late:
			a.pardon()
			late = a.late()
		case <-steady:
			a.backoff.Reset()
		}
	}
}

const saysFailed = "it says that it failed"

// ended takes note of an instance that ended without being stopped.
func (a *actor) ended() {
	id, exit := a.instance.Remit().InstanceID, a.instance.Exit()
	status, _ := a.instance.Status().Get()
	a.look() // whoever ended it may have wanted to: a signal reaches a whole system that shuts down at once
	unwanted, launched := a.unwanted() || a.debugging(), a.launched
	why := a.whyStopped()
	a.release()
	if unwanted {
		a.record(info, eventStopped, id, "has stopped: "+why, "reason", why)
		return
	}
	cause := exit.String()
	if status.GetState() == rolev1.RoleState_ROLE_STATE_FAILED {
		cause = cmp.Or(status.GetReason(), cause)
	}
	a.fell(eventCrashed, a.failure(id, cause, &exit, exit.Lines), launched.fingerprint)
}

// stop stops the instance, since it may not run or because of its failure, after which it is started again later.
func (a *actor) stop() {
	a.health.stop()
	id, launched, why := a.instance.Remit().InstanceID, a.launched, a.whyStopped()
	failing := a.failing
	if a.unwanted() {
		failing = nil // it would have been stopped anyway
	} else {
		why = failing.cause
	}
	shown := shown{state: stopping}
	if failing != nil {
		shown.reason = failing.cause
	}
	a.show(shown)
	a.log.Info("stopping", "instance", id, "why", why)
	err := a.end()
	select {
	case <-a.instance.Done():
		if err != nil {
			a.log.Warn("the instance has stopped, but left something behind", "instance", id, "error", err)
		}
	default:
		// Nothing may take its place: it would share its data with what hangs.
		a.log.Error("the instance does not stop", "instance", id, "error", err)
		if !a.r.abandoned(err) {
			shown.reason = causeOf(err)
			a.show(shown)
			a.wait(a.instance.Done(), stopAgain)
			return
		}
		a.release()
		return
	}
	exit, debugged := a.instance.Exit(), a.debugging()
	last, _ := a.instance.Status().Get()
	a.release()
	a.remains = ""
	if last.GetState() == rolev1.RoleState_ROLE_STATE_STOPPED {
		a.remains = last.GetReason()
	}
	switch {
	case (failing == nil || debugged) && a.remains != "":
		a.record(warning, eventStopped, id, "was stopped: "+why+"; it ended with an error: "+a.remains, "reason", why, "error", a.remains)
	case failing == nil || debugged:
		a.record(info, eventStopped, id, "was stopped: "+why, "reason", why)
	case failing.unresponsive:
		a.fell(eventUnresponsive, a.failure(id, why, nil, exit.Lines), launched.fingerprint)
	case exit.Signal != 0: // which the core sent
		a.fell(eventCrashed, a.failure(id, why, nil, exit.Lines), launched.fingerprint)
	default:
		a.fell(eventCrashed, a.failure(id, why, &exit, exit.Lines), launched.fingerprint)
	}
}

// end has the instance end: by its own doing, if it answers.
func (a *actor) end() error {
	ctx, grace := context.Background(), a.instance.Remit().StopGrace(a.r.config.Grace)
	if a.failing != nil && a.failing.unresponsive {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lostGrace)
		defer cancel()
		grace = lostAsked
	}
	return stopWith(ctx, a.instance, grace, a.stopReason())
}

// release ends what belonged to the instance.
func (a *actor) release() {
	a.health.stop()
	a.closeHost()
	a.instance, a.closeHost, a.health, a.renew, a.failing = nil, nil, nil, false, nil
	a.readySince = time.Time{}
}
