package roles_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func TestWhatDoesNotAnswerIsStartedAgain(t *testing.T) {
	f := newFakes()
	f.stopTime = 2 * time.Second
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		pass(time.Minute)
		first := x.get("app")
		if asked := first.asked.Load(); asked != 12 {
			t.Errorf("asked %d times in a minute", asked)
		}
		first.feel(errSilent)
		pass(roles.DefaultLivenessInterval + roles.DefaultLivenessTimeout - time.Millisecond)
		x.expect(t, "app", ready, "")
		pass(time.Millisecond)
		x.expect(t, "app", stopping, "it did not answer for 20s")
		f.mu.Lock()
		if hurry := f.hurries["app"]; hurry != 2*time.Second {
			t.Errorf("a process that may not hear is given %s to stop", hurry)
		}
		f.mu.Unlock()
		pass(2 * time.Second)
		x.expect(t, "app", backoff, "it did not answer for 20s")
		got := x.of("app").GetLastFailure()
		if got.GetCause() != "it did not answer for 20s" || got.ExitCode != nil || got.GetSignal() != "" || got.GetFailures() != 1 || got.GetInstanceId() != first.remit.InstanceID {
			t.Errorf("failure %v", got)
		}
		pass(time.Second)
		x.expect(t, "app", ready, "")
		if x.of("app").GetRestarts() != 1 {
			t.Errorf("status %v", x.of("app"))
		}
		// It answers late, but it does.
		x.get("app").feel(errLate(roles.DefaultLivenessTimeout - 1))
		pass(time.Hour)
		x.expect(t, "app", ready, "")
		if asked := x.get("app").asked.Load(); x.of("app").GetRestarts() != 1 || asked > 145 {
			t.Errorf("asked %d times, status %v", asked, x.of("app"))
		}
	})
}

func TestWhatIsNotWellIsStartedAgain(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		x.get("app").feel(errors.New("the disk is gone"))
		pass(roles.DefaultLivenessInterval + roles.DefaultLivenessTimeout - time.Millisecond)
		x.expect(t, "app", ready, "")
		if asked := x.get("app").asked.Load(); asked != 4 {
			t.Errorf("asked %d times", asked)
		}
		pass(time.Millisecond)
		x.expect(t, "app", backoff, "it was not well for 20s: the disk is gone")
		pass(time.Second)
		// Well again in time, again and again.
		for range 5 {
			x.get("app").feel(errors.New("dizzy"))
			pass(15 * time.Second)
			x.get("app").feel(nil)
			pass(5 * time.Second)
		}
		x.expect(t, "app", ready, "")
		if got := x.of("app"); got.GetRestarts() != 1 {
			t.Errorf("status %v", got)
		}
		// One that was never Ready is asked too.
		x.get("app").say(rolev1.RoleState_ROLE_STATE_STARTING, "")
		x.get("app").feel(errSilent)
		pass(30 * time.Second)
		if got := x.of("app").GetLastFailure(); got.GetFailures() != 2 || got.GetCause() != "it did not answer for 20s" {
			t.Errorf("failure %v", got)
		}
	})
}

// A timeout that is shorter than the interval does not end a role for one bad answer.
func TestShortTimeouts(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		pass(time.Minute)
		x.get("app").feel(errors.New("dizzy"))
		pass(2 * time.Second)
		x.get("app").feel(nil)
		pass(time.Hour)
		x.expect(t, "app", ready, "")
		if x.of("app").GetRestarts() != 0 {
			t.Errorf("status %v", x.of("app"))
		}
		x.get("app").feel(errSilent)
		pass(64 * time.Second)
		if got := x.of("app").GetLastFailure(); got.GetFailures() != 1 || got.GetCause() != "it did not answer for 4s" {
			t.Errorf("failure %v", got)
		}
	}, func(c *roles.Config) { c.Liveness = roles.Liveness{Interval: time.Minute, Timeout: 4 * time.Second} })
}

func TestNotAnsweringUsesUpTheBudget(t *testing.T) {
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		for range 3 {
			synctest.Wait()
			x.get("app").feel(errSilent)
			pass(time.Minute)
		}
		x.expect(t, "app", failed, "it failed 3 times within 1h, and 2 are allowed: it did not answer for 20s")
	}, budget(2, time.Hour))
}

// What is to be stopped anyway and does not answer is ended, and nobody's fault.
func TestWaitingToStopWithoutAnswering(t *testing.T) {
	f := newFakes()
	f.stopTime = time.Hour
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("store"), role("app", "store"))
		x.expect(t, "app", ready, "")
		x.desire(held(role("store"), "not now"), role("app", "store"))
		x.expect(t, "store", ready, "stops after app")
		x.get("store").feel(errSilent)
		pass(time.Minute)
		x.expect(t, "store", stopping, "")
		pass(time.Hour)
		x.expect(t, "store", blocked, "not now")
		if got := x.of("store").GetLastFailure(); got != nil {
			t.Errorf("failure %v", got)
		}
	}, budget(0, time.Hour))
}

// A role that does not answer while the disk does not is not to blame, whatever hangs with it; when the disk answers again, it counts from then on.
func TestWhatWaitsForTheDiskIsNotToBlame(t *testing.T) {
	var hung atomic.Int64 // until when
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		hung.Store(time.Now().Add(3 * time.Minute).UnixNano())
		x.get("app").feel(errSilent)
		pass(3 * time.Minute)
		x.expect(t, "app", ready, "")
		x.get("app").feel(nil) // the question that it was asked before it answers too late
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		if got := x.of("app"); got.GetRestarts() != 0 || got.GetLastFailure() != nil {
			t.Errorf("status %v", got)
		}
		x.get("app").feel(errSilent)
		pass(roles.DefaultLivenessInterval + roles.DefaultLivenessTimeout)
		x.expect(t, "app", backoff, "it did not answer for 20s")
	}, func(c *roles.Config) {
		c.Hung = func(context.Context) time.Time { return time.Unix(0, min(time.Now().UnixNano(), hung.Load())) }
	})
}

// TestAStallThatIsTooShortToCount has the disk stall for longer than a role may take to answer, and for less than it takes to count as a disk that does not answer.
func TestAStallThatIsTooShortToCount(t *testing.T) {
	var stalled atomic.Int64 // until when
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		stalled.Store(time.Now().Add(4 * time.Second).UnixNano())
		x.get("app").feel(errSilent)
		pass(4*time.Second - 1)
		x.get("app").feel(nil)
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		if got := x.of("app"); got.GetRestarts() != 0 || got.GetLastFailure() != nil {
			t.Errorf("status %v", got)
		}
	}, func(c *roles.Config) {
		c.Liveness = roles.Liveness{Interval: time.Second, Timeout: 2 * time.Second}
		c.Hung = func(context.Context) time.Time {
			<-time.After(time.Until(time.Unix(0, stalled.Load())))
			return time.Time{}
		}
	})
}

// TestAVersionThatHangsOnTrial holds that a version which does not answer is ended before its probation is over: with a disk that answers it is not asked again.
func TestAVersionThatHangsOnTrial(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.upgraded(t)
		x.get("app").feel(errSilent)
		pass(roles.DefaultProbation + time.Minute)
		if got := x.of("app"); x.runs("app") != "1" || got.GetRolledBack().GetVersion() != "2" {
			t.Errorf("version %q runs: %v", x.runs("app"), got)
		}
	}, func(c *roles.Config) { c.Hung = func(context.Context) time.Time { return time.Time{} } })
}
