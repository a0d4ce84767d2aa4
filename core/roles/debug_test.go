package roles_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TestDebug has a process that was started by hand take the place of an instance. It may stand still for longer than a role may, its end is no failure, and the node's own
// instance follows it.
func TestDebug(t *testing.T) {
	t.Parallel()
	events := &recorder{}
	node := newRealNode(t, impatient, func(c *roles.Config) { c.Events = events })
	record, by := node.add(t, pair), executable(t)
	node.desire(record, 1, plugintest.Configuration{Do: "ready"}, "store", "app")
	before := node.wait(t, "app", in(ready))
	process := by.ByHand(t, pair)
	pid := int64(process.Command.Process.Pid)
	debugging := func(s *clusterv1.InstanceStatus) bool {
		return s.GetState() == ready && s.GetDebug() && s.GetPid() == pid
	}

	found, err := node.launcher.Debugged(t.Context(), "app", process.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if former, err := node.Debug(t.Context(), found, true); err != nil || former != before.GetInstanceId() {
		t.Errorf("dry: %q, %v", former, err)
	}
	if former, err := node.Debug(t.Context(), found, false); err != nil || former != before.GetInstanceId() {
		t.Fatalf("%q, %v", former, err)
	}
	node.wait(t, "app", debugging)

	// It stands still, as at a breakpoint. A role of the node's own that does as much is found out, and that takes longer than the bound of this one's.
	store := node.wait(t, "store", in(ready))
	for _, standing := range []int{int(pid), int(store.GetPid())} {
		if err := unix.Kill(standing, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	node.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetPid() != store.GetPid() })
	if err := unix.Kill(int(pid), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	node.wait(t, "app", debugging)

	// It ends as if it had failed.
	if err := process.Command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	after := node.wait(t, "app", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetPid() != pid })
	if after.GetDebug() || after.GetRestarts() != 0 || after.GetLastFailure() != nil {
		t.Errorf("afterwards it is %v", after)
	}
	if types, _ := events.take(); !slices.Contains(types, "RoleDebugged") {
		t.Errorf("no event tells of it: %v", types)
	}

	// What has ended by now is not waited for.
	if _, err := node.Debug(t.Context(), found, false); err != nil {
		t.Fatal(err)
	}
	again := node.wait(t, "app", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetPid() != after.GetPid() })
	if again.GetDebug() || again.GetLastFailure() != nil {
		t.Errorf("after a process that is not there it is %v", again)
	}
}

// TestDebugEndsWithTheCore has a core stop, and another one leave its roles to the next: neither leaves a process that was started by hand.
func TestDebugEndsWithTheCore(t *testing.T) {
	t.Parallel()
	for name, cause := range inorder.Of(map[string]error{"stops": context.Canceled, "leaves": roles.ErrLeave}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newRealNode(t)
			node.desire(node.add(t, pair), 1, plugintest.Configuration{Do: "ready"}, "store")
			own := node.wait(t, "store", in(ready))
			process := executable(t).ByHand(t, pair)
			found, err := node.launcher.Debugged(t.Context(), "store", process.Socket)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := node.Debug(t.Context(), found, false); err != nil {
				t.Fatal(err)
			}
			node.wait(t, "store", func(s *clusterv1.InstanceStatus) bool {
				return s.GetDebug() && s.GetState() == ready && s.GetPid() != own.GetPid()
			})
			if err := node.stopFor(cause); err != nil {
				t.Error(err)
			}
			select {
			case <-process.Ended:
			case <-time.After(5 * time.Minute):
				t.Error("the process is left")
			}
		})
	}
}

// TestDebugRefused asks for a process of another plugin, and for a role that is not there.
func TestDebugRefused(t *testing.T) {
	t.Parallel()
	node, other := newRealNode(t), pair
	other.Name = "couple"
	node.desire(node.add(t, pair), 1, plugintest.Configuration{Do: "ready"}, "store")
	own := node.wait(t, "store", in(ready))
	process := executable(t).ByHand(t, other)
	var refused *plugin.DebugError
	var unknown *roles.NotDesiredError
	found, err := node.launcher.Debugged(t.Context(), "store", process.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Debug(t.Context(), found, false); !errors.As(err, &refused) {
		t.Errorf("of another plugin: %v", err)
	}
	if found, err = node.launcher.Debugged(t.Context(), "app", process.Socket); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Debug(t.Context(), found, false); !errors.As(err, &unknown) {
		t.Errorf("of a role that is not desired: %v", err)
	}
	if now := node.wait(t, "store", in(ready)); now.GetInstanceId() != own.GetInstanceId() {
		t.Errorf("the instance was touched: %v", now)
	}
	if _, err := node.launcher.Debugged(t.Context(), "app", process.Socket); err != nil {
		t.Errorf("the process does not wait any more: %v", err)
	}
}

// TestDebugOfWhatMayNotRun asks for a process where no instance may be started: the order is not kept for later.
func TestDebugOfWhatMayNotRun(t *testing.T) {
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		gated := role("gated")
		gated.Gate = "not yet"
		x.desire(held(role("held"), "not now"), gated, role("app", "held"))
		synctest.Wait()
		for name, why := range inorder.Of(map[string]string{"held": "not now", "gated": "not yet", "app": "requires role held"}) {
			var refused *plugin.DebugError
			if _, err := x.Debug(t.Context(), &plugin.Debugged{Role: name, Plugin: name}, true); !errors.As(err, &refused) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v", name, err)
			}
		}
		x.expectEvents(t)
	})
}

// TestDebugIsOvertaken has something else come while a process is being taken, or before: an event tells of it, since the process may have been ended.
func TestDebugIsOvertaken(t *testing.T) {
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		told := func(want string) {
			t.Helper()
			synctest.Wait()
			if _, events := x.events.take(); !strings.Contains(events["RoleNotLaunched"].GetMessage(), want) {
				t.Errorf("got %v, want %q", events["RoleNotLaunched"], want)
			}
			if x.of("app").GetDebug() {
				t.Error("it is debugged")
			}
		}
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		f.mu.Lock()
		f.launchTime, f.stopTime = time.Minute, time.Minute
		f.mu.Unlock()
		debug := func() {
			t.Helper()
			if _, err := x.Debug(t.Context(), &plugin.Debugged{Role: "app", Plugin: "app"}, false); err != nil {
				t.Fatal(err)
			}
		}
		debug()
		pass(time.Minute)
		x.expect(t, "app", starting, "")
		x.restart(t, "app")
		told("start the process again and repeat the command")
		pass(time.Minute)
		x.expect(t, "app", ready, "")

		debug()
		synctest.Wait()
		other := role("app")
		other.Plugin.Name = "other"
		x.desire(other)
		pass(time.Minute)
		told(`the role belongs to the plugin "other" now`)
		pass(time.Minute)
		x.expect(t, "app", ready, "")
	})
}

// TestEndDebug ends what is debugged, and nothing else.
func TestEndDebug(t *testing.T) {
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		own := x.of("app").GetInstanceId()
		if _, err := x.Debug(t.Context(), &plugin.Debugged{Role: "app", Plugin: "app"}, false); err != nil {
			t.Fatal(err)
		}
		x.expect(t, "app", ready, "debugged")
		taken := x.of("app").GetInstanceId()
		x.events.take()
		for _, id := range []string{own, taken, taken} {
			if err := x.EndDebug("app", id, "it is forbidden"); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if got := x.of("app"); (got.GetInstanceId() == taken) != (id == own) {
				t.Errorf("after the end of %s it is %v", id, got)
			}
		}
		if events := x.expectEvents(t, "RoleStopped", "RoleStarted", "RoleReady"); !strings.Contains(events["RoleStopped"].GetMessage(), "was stopped: it is forbidden") {
			t.Errorf("it ended by %v", events["RoleStopped"])
		}
		if got := x.of("app"); got.GetDebug() || got.GetLastFailure() != nil || f.launches != 3 {
			t.Errorf("after %d launches it is %v", f.launches, got)
		}
		x.restart(t, "app")
		if events := x.expectEvents(t, "RoleRestarted", "RoleStopped", "RoleStarted", "RoleReady"); !strings.Contains(events["RoleStopped"].GetMessage(), "an operator restarts it") {
			t.Errorf("it ended by %v", events["RoleStopped"])
		}
	})
}
