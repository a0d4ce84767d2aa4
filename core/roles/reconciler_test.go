package roles_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// bubble runs a test over fakes in synthetic time.
func bubble(t *testing.T, f *fakes, test func(t *testing.T, x *fixture), settings ...func(*roles.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := run(t, f, settings...)
		test(t, x)
		if err := x.end(); err != nil {
			t.Error(err)
		}
	})
}

// pass lets some time go by, and everything happen that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (x *fixture) expect(t *testing.T, role string, state hostv1.InstanceState, reason string) {
	t.Helper()
	synctest.Wait()
	got := x.of(role)
	if got.GetState() != state || got == nil || !strings.Contains(got.GetReason(), reason) {
		t.Errorf("role %s: %s (%q), want %s (%q)", role, got.GetState(), got.GetReason(), state, reason)
	}
}

func TestRequirementsStartInOrder(t *testing.T) {
	f := newFakes()
	f.readyTime = time.Second
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("curator", "reeve.consensus.v1"), providing(role("store"), "reeve.consensus.v1"), role("app", "curator", "store"))
		x.expect(t, "store", starting, "")
		x.expect(t, "curator", blocked, "waits for reeve.consensus.v1: role store is Starting")
		x.expect(t, "app", blocked, "waits for curator: role curator is Blocked")
		pass(time.Second)
		x.expect(t, "store", ready, "")
		x.expect(t, "curator", starting, "")
		pass(time.Second)
		x.expect(t, "app", starting, "")
		pass(time.Second)
		x.expect(t, "app", ready, "")
		if begun, _ := f.order(); !slices.Equal(begun, []string{"store", "curator", "app"}) {
			t.Errorf("launched in the order %v", begun)
		}
		if x.of("store").GetPid() == 0 || x.of("store").GetInstanceId() == "" || x.of("store").GetRestarts() != 0 {
			t.Errorf("status %v", x.of("store"))
		}
	})
	if _, ended := f.order(); !slices.Equal(ended, []string{"app", "curator", "store"}) {
		t.Errorf("stopped in the order %v", ended)
	}
}

func TestCapabilitiesFollowInstances(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		store := providing(role("store"), "reeve.consensus.v1")
		store.Plugin.Manifest.Roles[0].ConsensusUser = "s"
		store.Plugin.Grants[0].ConsensusUser = "s"
		x.desire(store, role("app"))
		synctest.Wait()
		now, _ := x.Capabilities().Get()
		for _, name := range []string{"store", "reeve.consensus.v1"} {
			if p := now[name]; p.Role != "store" || p.State != ready || p.InstanceID != x.of("store").GetInstanceId() || p.ConsensusUser != "s" {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if len(now) != 3 {
			t.Errorf("capabilities %v", now)
		}
		x.desire(role("app"))
		synctest.Wait()
		if now, _ := x.Capabilities().Get(); len(now) != 1 {
			t.Errorf("capabilities %v", now)
		}
		if x.of("store") != nil {
			t.Errorf("a role that is not desired is shown: %v", x.of("store"))
		}
	})
}

// TestUsersOfTheStore: a role with a ConsensusUser is of no use on a node without a member of the store, whether it says that it requires one or not.
func TestUsersOfTheStore(t *testing.T) {
	f := newFakes()
	store, user, stranger := providing(role("store"), "reeve.consensus.v1"), role("a-user"), role("stranger")
	for _, d := range []roles.DesiredRole{user, stranger} {
		d.Plugin.Manifest.Roles[0].ConsensusUser = "u"
	}
	user.Plugin.Grants[0].ConsensusUser = "u"
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(user, stranger)
		synctest.Wait()
		const why = "uses the consensus store (ConsensusUser u), and no role of this node that may run provides reeve.consensus.v1"
		x.expect(t, "a-user", blocked, why)
		// What it may not use it need not have.
		x.expect(t, "stranger", ready, "")
		x.desire(user, stranger, store)
		synctest.Wait()
		x.expect(t, "a-user", ready, "")
		x.desire(user, stranger, held(store, "so"))
		synctest.Wait()
		x.expect(t, "a-user", blocked, why)
		x.expect(t, "store", blocked, "so")
		x.desire(user, stranger, held(providing(role("consensus"), "reeve.consensus.v1"), "so"))
		synctest.Wait()
		x.expect(t, "a-user", blocked, why+": role consensus of this node is held back")
		if _, ended := f.order(); !slices.Equal(ended, []string{"a-user", "store"}) {
			t.Errorf("stopped in the order %v", ended)
		}
	})
}

func TestCrashesBackOff(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		want := 100 * time.Millisecond
		for n := range 12 {
			x.expect(t, "app", ready, "")
			if restarts := x.of("app").GetRestarts(); restarts != uint32(n) {
				t.Errorf("%d restarts, want %d", restarts, n)
			}
			x.get("app").crash()
			x.expect(t, "app", backoff, "ended by signal 9 (killed)")
			if next := time.Until(x.of("app").GetNextTry().AsTime()); next != want {
				t.Errorf("after crash %d: next try in %s, want %s", n, next, want)
			}
			pass(want - 1)
			x.expect(t, "app", backoff, "")
			pass(1)
			want = min(2*want, 30*time.Second)
		}
		pass(roles.DefaultBackoffReset)
		x.get("app").crash()
		synctest.Wait()
		if next := time.Until(x.of("app").GetNextTry().AsTime()); next != 100*time.Millisecond {
			t.Errorf("after a long time Ready: next try in %s", next)
		}
	}, budget(1000, time.Hour))
}

func TestRolesThatFailAreRestarted(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		synctest.Wait()
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "the disk is slow")
		x.expect(t, "app", degraded, "the disk is slow")
		x.get("app").say(rolev1.RoleState_ROLE_STATE_FAILED, "")
		x.expect(t, "app", backoff, "it says that it failed")
		pass(100 * time.Millisecond)
		x.get("app").say(rolev1.RoleState_ROLE_STATE_FAILED, "no more")
		x.expect(t, "app", backoff, "no more")
		pass(200 * time.Millisecond)
		x.expect(t, "app", ready, "")
	})
}

func TestDependentsOutliveRestarts(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		store, app := providing(role("store"), "reeve.consensus.v1"), role("app", "reeve.consensus.v1")
		x.desire(store, app)
		synctest.Wait()
		id := x.of("app").GetInstanceId()
		x.get("store").crash()
		x.expect(t, "store", backoff, "")
		x.expect(t, "app", ready, "")
		pass(time.Second)
		x.desire(configured(providing(role("store"), "reeve.consensus.v1"), "{}", 2), app)
		x.expect(t, "store", ready, "")
		if got := x.of("store"); got.GetConfigurationGeneration() != 2 || got.GetRestarts() != 1 {
			t.Errorf("status %v", got)
		}
		// What ends while its requirement does not run waits for it.
		x.get("app").crash()
		x.get("store").say(rolev1.RoleState_ROLE_STATE_STARTING, "")
		pass(time.Second)
		x.expect(t, "app", blocked, "waits for reeve.consensus.v1: role store is Starting")
		x.get("store").say(rolev1.RoleState_ROLE_STATE_READY, "")
		x.expect(t, "app", ready, "")
		if x.of("app").GetInstanceId() == id || x.of("app").GetRestarts() != 1 {
			t.Errorf("status %v", x.of("app"))
		}
		// One that is Degraded runs, and that is enough: see docs/decisions/0009.
		x.get("app").crash()
		x.get("store").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "full")
		pass(time.Second)
		x.expect(t, "store", degraded, "full")
		x.expect(t, "app", ready, "")
		x.desire(app)
		x.expect(t, "app", blocked, "requires reeve.consensus.v1, which no role of this node that may run provides")
		if _, ended := x.order(); !slices.Equal(ended[len(ended)-2:], []string{"app", "store"}) {
			t.Errorf("stopped in the order %v", ended)
		}
	})
}

func TestHeldRolesWait(t *testing.T) {
	f := newFakes()
	f.stopTime = time.Second
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("store"), role("app", "store"))
		x.expect(t, "app", ready, "")
		x.desire(held(role("store"), "the node is Split"), role("app", "store"))
		x.expect(t, "app", stopping, "")
		x.expect(t, "store", ready, "stops after app")
		pass(time.Second)
		x.expect(t, "store", stopping, "")
		pass(time.Second)
		x.expect(t, "store", blocked, "the node is Split")
		x.expect(t, "app", blocked, "requires role store, which is held back")
		x.desire(role("store"), role("app", "store"))
		x.expect(t, "app", ready, "")
	})
}

func TestCirclesAreNamed(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("a", "b"), providing(role("b", "c"), "x.b"), role("c", "a"), role("behind", "x.b"), role("self", "self"), role("free"))
		x.expect(t, "a", blocked, "requires itself: a → b → c → a")
		x.expect(t, "b", blocked, "requires itself: b → c → a → b")
		x.expect(t, "behind", blocked, "requires x.b, but role b is Blocked")
		x.expect(t, "self", blocked, "requires itself: self → self")
		x.expect(t, "free", ready, "")
		// Another way out of the circle makes it none.
		x.desire(role("a", "b"), providing(role("b", "x.c"), "x.b"), providing(role("c", "a"), "x.c"), providing(role("d"), "x.c"))
		for _, name := range []string{"a", "b", "c", "d"} {
			x.expect(t, name, ready, "")
		}
		// A circle among roles that run stops them, without one waiting for the other for ever.
		x.desire(role("a", "b"), providing(role("b", "c"), "x.b"), role("c", "a"))
		for _, name := range []string{"a", "b", "c"} {
			x.expect(t, name, blocked, "requires itself")
		}
	})
}

func TestFailuresForGood(t *testing.T) {
	f := newFakes()
	var launches atomic.Int32
	f.refuse = func(_, configuration string) error {
		launches.Add(1)
		if configuration == "bad" {
			return &plugin.ConfigurationError{Role: "app", Problems: []plugin.ConfigurationProblem{{Path: "/colour", Message: "no such field"}}}
		}
		return nil
	}
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(configured(role("app"), "bad", 1))
		x.expect(t, "app", failed, "refuses its configuration: /colour: no such field")
		x.desire(configured(role("app"), "bad", 1), role("other"))
		pass(time.Hour)
		if launches.Load() != 2 { // app and other
			t.Errorf("%d launches", launches.Load())
		}
		x.desire(configured(role("app"), "good", 2))
		x.expect(t, "app", ready, "")
		x.desire(configured(role("app"), "bad", 1))
		x.expect(t, "app", failed, "/colour")

		nobody := roles.DesiredRole{Assignment: &clusterv1.RoleAssignment{Role: "nobody"}}
		another := role("another")
		another.Assignment.Role = "ghost"
		x.desire(nobody, another, role("behind", "ghost"))
		x.expect(t, "nobody", failed, "no plugin of the catalog offers the role")
		x.expect(t, "ghost", failed, "plugin another 1.0.0 does not offer the role")
		x.expect(t, "behind", blocked, "requires role ghost, which is Failed")

		x.mu.Lock()
		x.prepareError = &store.MissingError{Digest: "sha256:x", Reason: "is not stored on this node"}
		x.mu.Unlock()
		x.desire(role("lost"))
		x.expect(t, "lost", failed, "is not stored on this node")
		x.mu.Lock()
		x.prepareError = nil
		x.mu.Unlock()
		// The same plugin was added again.
		again := role("lost")
		again.Plugin.Generation++
		x.desire(again)
		x.expect(t, "lost", ready, "")
	})
}

func TestNothingOfTheCatalogButTheRemitRestarts(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		synctest.Wait()
		id := x.of("app").GetInstanceId()
		again := role("app")
		again.Plugin.Generation++
		again.Plugin.Grants = append(again.Plugin.Grants, &clusterv1.RoleGrants{Role: "other", ConsensusUser: "other"})
		x.desire(again)
		synctest.Wait()
		if x.of("app").GetInstanceId() != id {
			t.Error("the role was restarted for nothing")
		}
		for what, change := range map[string]func(d roles.DesiredRole){
			"grants":     func(d roles.DesiredRole) { d.Plugin.Grants[0].Grants = []*rolev1.Grant{{Name: "replace-file"}} },
			"digest":     func(d roles.DesiredRole) { d.Plugin.Digests[store.Platform] = "sha256:other" },
			"generation": func(d roles.DesiredRole) { d.Assignment.Generation++ },
		} {
			id := x.of("app").GetInstanceId()
			changed := role("app")
			change(changed)
			x.desire(changed)
			x.expect(t, "app", ready, "")
			if x.of("app").GetInstanceId() == id {
				t.Errorf("a change of %s did not restart the role", what)
			}
		}
	})
}

func TestChangesOvertakeLaunches(t *testing.T) {
	f := newFakes()
	f.launchTime = time.Minute
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		pass(time.Second)
		x.expect(t, "app", starting, "")
		x.desire()
		synctest.Wait()
		if x.of("app") != nil {
			t.Errorf("still shown: %v", x.of("app"))
		}
		x.desire(role("app"))
		pass(time.Second)
		x.desire(configured(role("app"), "new", 2))
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		if got := x.of("app"); got.GetConfigurationGeneration() != 2 || got.GetRestarts() != 0 {
			t.Errorf("status %v", got)
		}
		// Another role's change overtakes nothing.
		x.desire(configured(role("app"), "new", 2), role("other"))
		pass(59 * time.Second)
		x.desire(configured(role("app"), "new", 2), role("other"), held(role("third"), "wait"))
		pass(time.Second)
		x.expect(t, "other", ready, "")
	})
}

func TestFailingRestartsLeakNothing(t *testing.T) {
	f := newFakes()
	var launches atomic.Int32
	f.refuse = func(string, string) error {
		launches.Add(1)
		return errors.New("boom")
	}
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"), role("behind", "app"))
		for launches.Load() < 1000 {
			pass(30 * time.Second)
		}
		x.expect(t, "app", backoff, "boom")
		if restarts := x.of("app").GetRestarts(); int32(restarts) != launches.Load()-1 {
			t.Errorf("%d restarts after %d launches", restarts, launches.Load())
		}
		x.expect(t, "behind", blocked, "waits for app: role app is Backoff")
		if err := x.leaks(); err != nil {
			t.Error(err)
		}
	}, budget(1000, time.Hour))
}

func TestHostSocketFails(t *testing.T) {
	f := newFakes()
	f.openError = errors.New("no socket")
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", backoff, "no socket")
		if err := x.leaks(); err != nil {
			t.Error(err)
		}
	})
}

func TestSeveralProviders(t *testing.T) {
	f := newFakes()
	f.readyTime = -1
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(providing(role("a"), "x.y"), providing(role("b"), "x.y"), role("app", "x.y"))
		x.expect(t, "app", blocked, "waits for x.y: role a is Starting, role b is Starting")
		x.get("b").say(rolev1.RoleState_ROLE_STATE_READY, "")
		x.expect(t, "app", starting, "")
		if now, _ := x.Capabilities().Get(); now["x.y"].Role != "a" {
			t.Errorf("provider %+v", now["x.y"])
		}
		x.desire(providing(role("a"), "x.y"), role("app", "x.y"))
		x.expect(t, "app", starting, "")
		if x.of("b") != nil {
			t.Error("role b is still shown")
		}
	})
}

func TestInstancesAreSorted(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("c"), role("a"), role("b"))
		synctest.Wait()
		now, _ := x.Instances().Get()
		var names []string
		for _, instance := range now {
			names = append(names, fmt.Sprint(instance.Status.GetRole(), instance.Remit.Role))
		}
		if !slices.Equal(names, []string{"aa", "bb", "cc"}) {
			t.Errorf("instances %v", names)
		}
	})
}
