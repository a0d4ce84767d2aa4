package roles_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/roles"
)

const noMajority = "the consensus store has no majority"

// late has a shortage begin, and end with "", while roles run.
type late struct{ what atomic.Pointer[string] }

func (l *late) is(what string) { l.what.Store(&what) }

func (l *late) says() string {
	if what := l.what.Load(); what != nil {
		return *what
	}
	return ""
}

// TestShortageThatIsKnownLate has roles fail before the node knows that the store has no majority. Their budget is used up by then, and what was the store's fault is not held against them.
func TestShortageThatIsKnownLate(t *testing.T) {
	var away late
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		user := func(name string) roles.DesiredRole { return role(name, roles.CapabilityConsensus) }
		store := providing(role("store"), roles.CapabilityConsensus)
		x.desire(store, user("user"), user("once"), user("held"), user("part"), role("other"))
		x.crash(t, "part", 1) // long before
		for _, name := range []string{"user", "once", "held", "part", "other"} {
			x.expect(t, name, ready, "")
		}
		for _, name := range []string{"once", "held", "part", "user", "other", "held", "user", "other"} {
			x.get(name).crash()
			pass(1500 * time.Millisecond)
		}
		for _, name := range []string{"user", "held", "part", "other"} {
			x.expect(t, name, failed, "it failed 2 times")
		}
		x.expect(t, "once", ready, "")
		x.events.take()
		x.desire(store, user("user"), user("once"), held(user("held"), "not now"), user("part"), role("other"))
		away.is(noMajority)
		pass(31 * time.Second)
		x.expect(t, "user", ready, "")
		x.expect(t, "other", failed, "it failed 2 times")
		x.expect(t, "held", blocked, "not now")
		if got := x.of("user"); got.GetLastFailure().GetFailures() != 0 || !strings.Contains(got.GetLastFailure().GetCause(), "no majority") || got.GetRestarts() != 2 {
			t.Errorf("status %v", got)
		}
		if types, events := x.events.take(); !strings.Contains(events["RoleRestarted"].GetMessage(), "it is not to blame: ") || !strings.Contains(events["RoleRestarted"].GetDetails()["cause"], noMajority) {
			t.Errorf("events %v: %v", types, events)
		}
		away.is("")
		x.desire(store, user("user"), user("once"), user("held"), user("part"), role("other"))
		x.expect(t, "held", ready, "")
		x.crash(t, "part", 1)
		x.expect(t, "part", failed, "it failed 2 times") // what it failed of before was long ago, and counts
		for _, name := range []string{"once", "user"} {
			x.crash(t, name, 1)
			x.expect(t, name, ready, "")
		}
		x.crash(t, "user", 1)
		x.expect(t, "user", failed, "it failed 2 times")
		// What comes later has nothing to do with it.
		pass(16 * time.Second)
		away.is(noMajority)
		pass(time.Minute)
		x.expect(t, "user", failed, "it failed 2 times")
	}, budget(1, time.Hour), func(c *roles.Config) { c.StoreAway = away.says })
}

// TestVersionFailsBeforeTheShortageIsKnown has a new version fail its trial before the node knows what it lacks. The one before goes on: the store has no leader for a moment at every election, also when
// the version is what ended it.
func TestVersionFailsBeforeTheShortageIsKnown(t *testing.T) {
	var lacks late
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.upgraded(t)
		x.get("app").crash()
		pass(5 * time.Second)
		lacks.is("the disk is full")
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		if got := x.of("app"); x.runs("app") != "1" || got.GetRolledBack().GetVersion() != "2" {
			t.Errorf("status %v", got)
		}
	}, func(c *roles.Config) { c.Shortage = lacks.says })
}
