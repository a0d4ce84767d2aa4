package roles_test

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func (x *fixture) expectEvents(t *testing.T, want ...string) map[string]*nodev1.Event {
	t.Helper()
	synctest.Wait()
	types, events := x.events.take()
	if !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
	for _, event := range events {
		if event.GetRole() == "" || event.GetMessage() == "" || event.GetSeverity() == 0 || event.GetSequence() != 0 || event.GetTime() != nil {
			t.Errorf("event %v", event)
		}
	}
	return events
}

func TestEvents(t *testing.T) {
	f := newFakes()
	var took []time.Duration
	f.launchTime, f.readyTime = time.Second, time.Second
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		pass(3 * time.Second)
		x.expectEvents(t, "RoleStarted", "RoleReady")
		if !slices.Equal(took, []time.Duration{2 * time.Second}) {
			t.Errorf("launched in %v", took)
		}
		x.get("app").end(plugin.Exit{Code: 3, Lines: []string{"ouch"}})
		crashed := x.expectEvents(t, "RoleCrashed")["RoleCrashed"]
		if crashed.GetSeverity() != nodev1.Severity_SEVERITY_WARNING || crashed.GetInstanceId() != "node/app/1" ||
			crashed.GetMessage() != "role app failed: exited with status 3: ouch" {
			t.Errorf("event %v", crashed)
		}
		for name, want := range map[string]string{
			"cause": "exited with status 3: ouch", "exit_code": "3", "failures": "1", "budget": "1", "window": "10m",
		} {
			if crashed.GetDetails()[name] != want {
				t.Errorf("%s is %q, want %q", name, crashed.GetDetails()[name], want)
			}
		}
		if len(crashed.GetDetails()) != 5 {
			t.Errorf("details %v", crashed.GetDetails())
		}
		pass(10 * time.Second)
		x.expectEvents(t, "RoleStarted", "RoleReady")
		x.get("app").crash()
		events := x.expectEvents(t, "RoleCrashed", "RoleFailed")
		if events["RoleFailed"].GetSeverity() != nodev1.Severity_SEVERITY_ERROR || events["RoleFailed"].GetDetails()["signal"] != "SIGKILL" ||
			!strings.Contains(events["RoleFailed"].GetMessage(), "role app is Failed: it failed 2 times within 10m, and 1 are allowed: ended by signal 9 (killed); it is started again by: reeve node role restart node app") {
			t.Errorf("event %v", events["RoleFailed"])
		}
		x.restart(t, "app")
		pass(10 * time.Second)
		x.expectEvents(t, "RoleRestarted", "RoleStarted", "RoleReady")
		x.restart(t, "app")
		pass(10 * time.Second)
		x.expectEvents(t, "RoleRestarted", "RoleStopped", "RoleStarted", "RoleReady")
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "the disk is slow")
		degraded := x.expectEvents(t, "RoleDegraded")["RoleDegraded"]
		if degraded.GetMessage() != "role app is Degraded: the disk is slow" || degraded.GetDetails()["reason"] != "the disk is slow" {
			t.Errorf("event %v", degraded)
		}
		// It is told once for a reason.
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "the disk is slow")
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "the snapshot failed")
		if event := x.expectEvents(t, "RoleDegraded")["RoleDegraded"]; event.GetMessage() != "role app is Degraded: the snapshot failed" {
			t.Errorf("event %v", event)
		}
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "the snapshot failed")
		x.expectEvents(t)
		x.get("app").feel(errSilent)
		pass(40 * time.Second)
		x.expectEvents(t, "RoleUnresponsive", "RoleStarted", "RoleReady")
		x.desire()
		stopped := x.expectEvents(t, "RoleStopped")["RoleStopped"]
		if stopped.GetMessage() != "role app was stopped: it is not to run on this node any more" {
			t.Errorf("event %v", stopped)
		}
	}, budget(1, 0), func(c *roles.Config) {
		c.Launched = func(_ string, d time.Duration) { took = append(took, d) }
	})
}

func TestEventsOfWhatCannotRun(t *testing.T) {
	f := newFakes()
	f.readyTime = 9 * time.Second
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("store"), role("app", "store"))
		pass(time.Minute)
		x.expectEvents(t, "RoleStarted", "RoleReady", "RoleStarted", "RoleReady")
		x.desire(role("app", "store"))
		pass(9 * time.Second)
		x.expectEvents(t, "RoleStopped", "RoleStopped")
		pass(time.Second)
		blocked := x.expectEvents(t, "RoleBlocked")["RoleBlocked"]
		if blocked.GetMessage() != "role app is Blocked: requires store, which no role of this node that may run provides" {
			t.Errorf("event %v", blocked)
		}
		nobody := role("nobody")
		nobody.Plugin = nil
		for range 3 {
			x.desire(held(role("app", "store"), "not now"), nobody)
			pass(time.Hour)
			x.desire(role("app", "store"), nobody)
			pass(time.Hour)
		}
		x.expectEvents(t, "RoleFailed") // once for a reason, and it is Blocked all the time
		f.mu.Lock()
		f.openError = syscall.ENOSPC
		f.mu.Unlock()
		x.desire(role("app"))
		pass(time.Hour)
		x.expectEvents(t, "RoleNotLaunched")
		f.mu.Lock()
		f.openError, f.prepareError = nil, &store.MissingError{Reason: "is not stored on this node"}
		f.mu.Unlock()
		pass(time.Hour)
		if event := x.expectEvents(t, "RoleFailed")["RoleFailed"]; !strings.Contains(event.GetMessage(), "reeve plugin add") {
			t.Errorf("event %v", event)
		}
	})
}

// A role that changes its mind all the time does not drown the events of the others.
func TestFlappingRolesMakeFewEvents(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		synctest.Wait()
		for n := range 3600 {
			state := rolev1.RoleState_ROLE_STATE_READY
			if n%2 == 0 {
				state = rolev1.RoleState_ROLE_STATE_DEGRADED
			}
			x.get("app").say(state, "")
			pass(time.Second)
		}
		types, _ := x.events.take()
		if len(types) < 30 || len(types) > 80 {
			t.Errorf("%d events in an hour", len(types))
		}
		// So does one that stays Degraded and always has another reason.
		for n := range 3600 {
			x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, strconv.Itoa(n))
			pass(time.Second)
		}
		if types, _ := x.events.take(); len(types) < 10 || len(types) > 14 {
			t.Errorf("%d events of reasons in an hour", len(types))
		}
		// The last state is told in the end.
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "tired")
		pass(10 * time.Minute)
		x.get("app").say(rolev1.RoleState_ROLE_STATE_READY, "")
		pass(10 * time.Minute)
		if types, _ := x.events.take(); len(types) == 0 || types[len(types)-1] != "RoleReady" {
			t.Errorf("events %v", types)
		}
	})
}
