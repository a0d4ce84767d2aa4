package roles

import (
	"cmp"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Recorder keeps events. Record never blocks; it fills in the sequence number and the time, and owns the event from then on.
type Recorder interface{ Record(event *nodev1.Event) }

// The types of the events of roles.
const (
	eventStarted      = "RoleStarted"
	eventAdopted      = "RoleAdopted"
	eventReady        = "RoleReady"
	eventDegraded     = "RoleDegraded"
	eventBlocked      = "RoleBlocked"
	eventStopped      = "RoleStopped"
	eventRestarted    = "RoleRestarted"
	eventCrashed      = "RoleCrashed"
	eventUnresponsive = "RoleUnresponsive"
	eventNotLaunched  = "RoleNotLaunched"
	eventFailed       = "RoleFailed"
	eventRolledBack   = "RoleRolledBack"
	eventDebugged     = "RoleDebugged"
)

const (
	// blockedLong is how long a role must be Blocked for an event: every role that requires another one is for a moment, and that is no news. Nor is it that a role has to
	// wait for a device which the kernel is about to show.
	blockedLong = 10 * time.Second
	// A role that is Ready and Degraded, or Blocked, in turn all the time makes changesAtOnce events of it, and then one every changesPause, which tells the state that
	// it then has: what else happened on the node must not be lost among them. A role that stays Degraded and changes its reason all the time makes changesAtOnce more, and then one every reasonsPause: a number in a reason is no news.
	changesAtOnce = 6
	changesPause  = time.Minute
	reasonsPause  = 10 * time.Minute
)

const (
	info    = nodev1.Severity_SEVERITY_INFO
	warning = nodev1.Severity_SEVERITY_WARNING
	serious = nodev1.Severity_SEVERITY_ERROR
)

// record makes an event of something that happened to the role. Details are names and values in turn; those without a value are left out.
func (a *actor) record(severity nodev1.Severity, kind, instanceID, message string, details ...string) {
	event := &nodev1.Event{
		Severity: severity, Type: kind, Role: a.role, InstanceId: instanceID, Message: "role " + a.role + " " + message,
		Details: make(map[string]string),
	}
	for n := 0; n+1 < len(details); n += 2 {
		if details[n+1] != "" {
			event.Details[details[n]] = details[n+1]
		}
	}
	a.r.config.Events.Record(event)
}

// recordFailure makes an event of a failure.
func (a *actor) recordFailure(severity nodev1.Severity, kind, message string, f *clusterv1.Failure) {
	code := ""
	if f.ExitCode != nil {
		code = strconv.Itoa(int(f.GetExitCode()))
	}
	oom := ""
	if f.GetOutOfMemory() {
		oom = "true"
	}
	a.record(severity, kind, f.GetInstanceId(), message, "out_of_memory", oom,
		"cause", f.GetCause(), "exit_code", code, "signal", f.GetSignal(),
		"failures", strconv.FormatUint(uint64(f.GetFailures()), 10), "budget", strconv.FormatUint(uint64(f.GetBudget()), 10),
		"window", spell(f.GetWindow().AsDuration()))
}

// because is a reason in a sentence.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// spell is a duration as people write it: 10m and not 10m0s.
func spell(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= unit.size && d%unit.size == 0 {
			return strconv.Itoa(int(d/unit.size)) + unit.name
		}
	}
	return d.String()
}

// news is what has been told of an instance, and how much of its changes still may be.
type news struct {
	pace *rate.Limiter
	told hostv1.InstanceState
	// reason is the one that was told while the state is Degraded; reasons is the pace of those that come while it stays so.
	reason  string
	reasons *rate.Limiter
}

func newNews() *news {
	return &news{pace: rate.NewLimiter(rate.Every(changesPause), changesAtOnce), reasons: rate.NewLimiter(rate.Every(reasonsPause), changesAtOnce)}
}

// tell makes an event of the state that the instance is in, if it is another one than was told last, or Degraded for another reason. If there were too many of them it
// returns a channel that says when to look again.
func (a *actor) tell() (later <-chan time.Time) {
	now := a.last.status
	state, pace := now.GetState(), a.news.pace
	switch {
	case state != ready && state != degraded && state != blocked:
		return nil
	case state != a.news.told:
	case state == degraded && now.GetReason() != a.news.reason:
		pace = a.news.reasons
	default:
		return nil
	}
	if state == blocked {
		if left := untilBlockedLong(now); left > 0 {
			return time.After(left)
		}
	}
	if reservation := pace.Reserve(); reservation.Delay() > 0 {
		delay := reservation.Delay()
		reservation.Cancel()
		return time.After(delay)
	}
	a.news.told, a.news.reason = state, now.GetReason()
	switch state {
	case ready:
		a.record(info, eventReady, now.GetInstanceId(), "is Ready")
	case degraded:
		a.record(warning, eventDegraded, now.GetInstanceId(), "is Degraded"+because(now.GetReason()), "reason", now.GetReason())
	default:
		a.record(warning, eventBlocked, now.GetInstanceId(), "is Blocked"+because(now.GetReason()), "reason", now.GetReason())
	}
	return nil
}

// untilBlockedLong is how long a role has to be Blocked yet until that is news; 0: it is.
func untilBlockedLong(now *clusterv1.InstanceStatus) time.Duration {
	left := blockedLong - time.Since(now.GetSince().AsTime())
	return max(min(left, blockedLong), 0) // also if the clock was set
}

// tellBlocked makes an event of a role without an instance that has been Blocked for long, once. It returns how long that is still to be waited for; 0: nothing is.
func (a *actor) tellBlocked() time.Duration {
	now := a.last.status
	if now.GetState() != blocked || a.blockedTold {
		return 0
	}
	if left := untilBlockedLong(now); left > 0 {
		return left
	}
	a.blockedTold = true
	a.record(warning, eventBlocked, "", "is Blocked: "+now.GetReason(), "reason", now.GetReason())
	return 0
}

// tellPlanned makes an event of a plan's saying that the role is Failed, once for every reason.
func (a *actor) tellPlanned() {
	now := a.last.status
	if now.GetState() != failed || now.GetReason() == a.plannedTold {
		return
	}
	a.plannedTold = now.GetReason()
	a.record(serious, eventFailed, "", "is Failed: "+now.GetReason(), "cause", now.GetReason())
}

// whyStopped says why an instance is stopped that may not go on.
func (a *actor) whyStopped() string {
	switch {
	case a.seen.desired == nil && a.r.ending():
		return "the core stops"
	case a.seen.desired == nil:
		return "it is not to run on this node any more"
	case !a.seen.run:
		return cmp.Or(a.seen.reason, "it may not run")
	case a.renew:
		return cmp.Or(a.why, "an operator restarts it")
	case a.debugging() && a.seen.fingerprint == a.launched.fingerprint:
		return "the process that was started by hand has ended"
	}
	return "its configuration, its executable or its grants changed"
}
