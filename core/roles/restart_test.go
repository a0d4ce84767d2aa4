package roles_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// restart is Restart, which succeeds.
func (x *fixture) restart(t *testing.T, name string) (instanceID string) {
	t.Helper()
	instanceID, err := x.Restart(t.Context(), name, false)
	if err != nil {
		t.Error(err)
	}
	return instanceID
}

func TestRestart(t *testing.T) {
	f := newFakes()
	f.stopTime = time.Second
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"), role("behind", "app"))
		x.expect(t, "behind", ready, "")
		before, behind := x.of("app").GetInstanceId(), x.of("behind").GetInstanceId()
		if id, err := x.Restart(t.Context(), "app", true); err != nil || id != before {
			t.Errorf("%q, %v", id, err)
		}
		pass(time.Minute)
		if x.of("app").GetInstanceId() != before {
			t.Error("a dry run changed something")
		}
		if id := x.restart(t, "app"); id != before {
			t.Errorf("it stops %q, not %q", id, before)
		}
		x.expect(t, "app", stopping, "")
		// Once more, while it stops: one restart is enough.
		x.restart(t, "app")
		pass(time.Second)
		x.expect(t, "app", ready, "")
		got := x.of("app")
		if got.GetInstanceId() == before || got.GetRestarts() != 0 || got.GetLastFailure() != nil || x.of("behind").GetInstanceId() != behind {
			t.Errorf("status %v", got)
		}
		if f.launches != 3 {
			t.Errorf("%d launches", f.launches)
		}
	})
}

func TestRestartWhateverItsState(t *testing.T) {
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.crash(t, "app", 2)
		x.expect(t, "app", failed, "")
		if id := x.restart(t, "app"); id != "" {
			t.Errorf("it stops %q, and none runs", id)
		}
		x.expect(t, "app", ready, "")
		if got := x.of("app").GetLastFailure(); got.GetFailures() != 2 {
			t.Errorf("what happened is shown no more: %v", got)
		}
		// The whole budget is there again, and the time in Backoff is short again.
		x.get("app").crash()
		x.expect(t, "app", backoff, "")
		x.restart(t, "app")
		x.expect(t, "app", ready, "")
		x.get("app").crash()
		x.expect(t, "app", backoff, "")
		if next := time.Until(x.of("app").GetNextTry().AsTime()); next != 100*time.Millisecond {
			t.Errorf("next try in %s", next)
		}
		pass(time.Minute)

		x.desire(role("store"), role("app", "store"), role("waits", "store"))
		x.expect(t, "waits", ready, "")
		f.mu.Lock()
		f.readyTime = -1
		f.mu.Unlock()
		x.restart(t, "store")
		x.expect(t, "store", starting, "")
		x.restart(t, "waits")
		x.expect(t, "waits", blocked, "waits for store")
		x.restart(t, "waits")
		x.restart(t, "store")
		x.expect(t, "store", starting, "")
		x.expect(t, "waits", blocked, "waits for store")
		x.get("store").say(rolev1.RoleState_ROLE_STATE_READY, "")
		x.expect(t, "waits", starting, "")
		x.get("waits").say(rolev1.RoleState_ROLE_STATE_READY, "")
		x.expect(t, "waits", ready, "")

		x.desire(held(role("store"), "not now"), role("app", "store"))
		x.expect(t, "app", blocked, "requires role store")
		x.restart(t, "app")
		x.restart(t, "store")
		x.expect(t, "app", blocked, "requires role store")
		x.expect(t, "store", blocked, "not now")
	}, budget(1, time.Hour))

	refused := true
	f = newFakes()
	f.refuse = func(string, string) error {
		if refused {
			return &plugin.ConfigurationError{Role: "app", Problems: []plugin.ConfigurationProblem{{Message: "bad"}}}
		}
		return nil
	}
	f.launchTime = time.Minute
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		pass(time.Minute)
		x.expect(t, "app", failed, "bad")
		f.mu.Lock()
		refused = false
		f.mu.Unlock()
		x.restart(t, "app")
		pass(30 * time.Second)
		x.expect(t, "app", starting, "")
		// While it is being launched: the launch begins anew.
		x.restart(t, "app")
		pass(59 * time.Second)
		x.expect(t, "app", starting, "")
		pass(time.Second)
		x.expect(t, "app", ready, "")
		if f.launches != 1 {
			t.Errorf("%d launches", f.launches)
		}
	})
}

func TestRestartIsRefused(t *testing.T) {
	f := newFakes()
	f.stopTime = time.Minute
	bubble(t, f, func(t *testing.T, x *fixture) {
		var not *roles.NotDesiredError
		if _, err := x.Restart(t.Context(), "app", false); !errors.As(err, &not) || len(not.Desired) > 0 || !strings.Contains(err.Error(), "it should run none") {
			t.Errorf("error %v", err)
		}
		x.desire(role("b"), role("app"), role("a"))
		x.expect(t, "app", ready, "")
		x.desire(role("b"), role("a"))
		x.expect(t, "app", stopping, "")
		for _, dryRun := range []bool{true, false} {
			_, err := x.Restart(t.Context(), "app", dryRun)
			if !errors.As(err, &not) || not.Role != "app" || !slices.Equal(not.Desired, []string{"a", "b"}) || !strings.Contains(err.Error(), "it should run a, b") {
				t.Errorf("error %v", err)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Restart(over, "a", false); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		x.cancel()
		synctest.Wait()
		if _, err := x.Restart(t.Context(), "a", false); !errors.Is(err, roles.ErrStopping) {
			t.Errorf("error %v", err)
		}
	})
}

// What an operator was told to have been begun is not undone by the end of the core.
func TestRestartIsKept(t *testing.T) {
	dir := t.TempDir()
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.crash(t, "app", 2)
		x.expect(t, "app", failed, "")
		x.restart(t, "app")
	}, kept(dir, "one"), budget(1, time.Hour))
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		x.crash(t, "app", 1)
		x.expect(t, "app", ready, "")
	}, kept(dir, "one"), budget(1, time.Hour))
}

// The back-off begins anew after a time in which the role was Ready, however often a new plan is made meanwhile.
func TestNewPlansDoNotKeepTheBackOff(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		for range 8 {
			synctest.Wait()
			x.get("app").crash()
			synctest.Wait()
			pass(time.Until(x.of("app").GetNextTry().AsTime()))
		}
		wait := func(planned time.Duration) {
			t.Helper()
			for left := planned; left > 0; left -= time.Second {
				x.desire(role("app"))
				pass(time.Second)
			}
			x.get("app").crash()
			synctest.Wait()
		}
		wait(roles.DefaultBackoffReset)
		if next := time.Until(x.of("app").GetNextTry().AsTime()); next != roles.DefaultBackoffInitial {
			t.Errorf("next try in %s, want %s", next, roles.DefaultBackoffInitial)
		}
		pass(time.Until(x.of("app").GetNextTry().AsTime()))
		// Time in which it was not Ready does not count.
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "")
		x.desire(role("app"))
		synctest.Wait()
		x.get("app").say(rolev1.RoleState_ROLE_STATE_READY, "")
		wait(roles.DefaultBackoffReset - time.Second)
		if next := time.Until(x.of("app").GetNextTry().AsTime()); next != 2*roles.DefaultBackoffInitial {
			t.Errorf("next try in %s, want %s", next, 2*roles.DefaultBackoffInitial)
		}
	}, budget(1000, time.Hour))
}
