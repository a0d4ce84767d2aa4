package roles_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// of is a desired role in another version of its plugin.
func of(d roles.DesiredRole, version string) roles.DesiredRole {
	d.Plugin.Version, d.Plugin.Digests[store.Platform] = version, "sha256:"+d.Plugin.GetName()+version
	return d
}

// after is a desired role that replaced another version of it.
func after(d, before roles.DesiredRole) roles.DesiredRole {
	before.Assignment = d.Assignment
	d.Previous = &before
	return d
}

// runs is the version that an instance of a role was launched with; empty: none runs.
func (x *fixture) runs(name string) string {
	if instance := x.get(name); instance != nil {
		return instance.version
	}
	return ""
}

// upgraded has version 1 of a role be well for long, and version 2 take its place.
func (x *fixture) upgraded(t *testing.T) {
	t.Helper()
	x.desire(of(role("app"), "1"))
	pass(time.Hour)
	x.expect(t, "app", ready, "")
	x.desire(after(of(role("app"), "2"), of(role("app"), "1")))
	synctest.Wait()
}

func TestUpgrade(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.upgraded(t)
		x.expect(t, "app", ready, "version 2 is on trial until ")
		if x.runs("app") != "2" || x.of("app").GetPluginVersion() != "2" || x.of("app").GetRolledBack() != nil {
			t.Fatalf("status %v", x.of("app"))
		}
		pass(roles.DefaultProbation)
		if got := x.of("app"); got.GetReason() != "" || got.GetState() != ready {
			t.Errorf("status %v", got)
		}
		// From now on it is the role's own version, and its failures are as any other's.
		first := x.of("app").GetInstanceId()
		x.crash(t, "app", 3)
		x.expect(t, "app", ready, "")
		if got := x.of("app"); x.runs("app") != "2" || got.GetLastFailure().GetFailures() != 3 || got.GetInstanceId() == first || got.GetReason() != "" {
			t.Errorf("status %v", got)
		}
		if begun, ended := x.order(); len(begun) != 5 || len(ended) != 4 {
			t.Errorf("launched %v, ended %v", begun, ended)
		}
	})
}

func TestGoesBack(t *testing.T) {
	for name, fail := range inorder.Of(map[string]func(x *fixture){
		"crash":   func(x *fixture) { x.get("app").crash() },
		"says so": func(x *fixture) { x.get("app").say(rolev1.RoleState_ROLE_STATE_FAILED, "no luck") },
		"unresponsive": func(x *fixture) {
			x.get("app").feel(errSilent)
			pass(roles.DefaultLivenessInterval + roles.DefaultLivenessTimeout)
		},
		"crash at the end": func(x *fixture) {
			pass(roles.DefaultProbation - time.Millisecond)
			x.get("app").crash()
		},
	}) {
		t.Run(name, func(t *testing.T) {
			bubble(t, newFakes(), func(t *testing.T, x *fixture) {
				x.desire(of(role("app"), "1"), role("behind", "app"))
				x.crash(t, "app", 2)
				pass(time.Minute)
				behind := x.of("behind").GetInstanceId()
				x.events.take()
				upgraded := after(of(role("app"), "2"), of(role("app"), "1"))
				x.desire(upgraded, role("behind", "app"))
				synctest.Wait()
				if x.runs("app") != "2" {
					t.Fatalf("version %q runs", x.runs("app"))
				}
				fail(x)
				x.expect(t, "app", ready, "")
				got := x.of("app")
				if back := got.GetRolledBack(); x.runs("app") != "1" || got.GetPluginVersion() != "1" || back.GetVersion() != "2" || back.GetDigest() != "sha256:app2" ||
					back.GetReason() == "" || back.GetTime() == nil || got.GetReason() != "" {
					t.Errorf("status %v", got)
				}
				types, events := x.events.take()
				if event := events["RoleRolledBack"]; event.GetDetails()["version"] != "2" || event.GetDetails()["to_version"] != "1" || event.GetDetails()["cause"] == "" {
					t.Errorf("events %v: %v", types, event)
				}
				if x.of("behind").GetInstanceId() != behind {
					t.Error("the other role was restarted")
				}
				// It stays so, and the budget is what it was: two of it are used up.
				pass(time.Minute)
				x.desire(upgraded, role("behind", "app"), role("other"))
				pass(time.Minute)
				if x.runs("app") != "1" || x.of("app").GetRolledBack() == nil {
					t.Errorf("status %v", x.of("app"))
				}
				x.crash(t, "app", 1)
				x.expect(t, "app", ready, "")
				if got := x.of("app").GetLastFailure().GetFailures(); got != 3 {
					t.Errorf("%d failures count", got)
				}
				x.crash(t, "app", 1)
				x.expect(t, "app", failed, "it failed 4 times")
			}, budget(3, time.Hour))
		})
	}
}

func TestRefusedVersions(t *testing.T) {
	tests := map[string]struct {
		refuse error
		reason string
	}{
		"configuration": {&plugin.ConfigurationError{Role: "app", Problems: []plugin.ConfigurationProblem{{Path: "/new", Message: "is missing"}}}, "/new: is missing"},
		"no such role":  {&plugin.UnknownRoleError{Role: "app", Plugin: "app"}, "offers no role"},
		"protocol":      {&store.VersionError{Plugin: "app", Protocol: "role", Theirs: "2", Ours: "1"}, "speaks role"},
		"launch":        {&plugin.LaunchError{Role: "app", Err: errors.New("made no handshake")}, "made no handshake"},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			f.refuseVersion = func(version string) error {
				if version == "2" {
					return test.refuse
				}
				return nil
			}
			bubble(t, f, func(t *testing.T, x *fixture) {
				x.upgraded(t)
				x.expect(t, "app", ready, "")
				if back := x.of("app").GetRolledBack(); x.runs("app") != "1" || !strings.Contains(back.GetReason(), test.reason) {
					t.Errorf("status %v", x.of("app"))
				}
				if got := x.of("app").GetLastFailure(); got.GetFailures() != 0 || !strings.Contains(got.GetCause(), test.reason) {
					t.Errorf("failure %v", got)
				}
			})
		})
	}
}

// What the node lacks is not the version's fault.
func TestTrialWhileTheNodeIsShort(t *testing.T) {
	f := newFakes()
	var shortage string
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.upgraded(t)
		shortage = "the disk is full"
		x.crash(t, "app", 3)
		if x.runs("app") != "2" || x.of("app").GetRolledBack() != nil {
			t.Errorf("status %v", x.of("app"))
		}
		shortage = ""
		x.crash(t, "app", 1)
		if x.runs("app") != "1" {
			t.Errorf("status %v", x.of("app"))
		}
	}, func(c *roles.Config) { c.Shortage = func() string { return shortage }; c.Probation = time.Hour })
}

func TestNeverReady(t *testing.T) {
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(of(role("app"), "1"))
		x.expect(t, "app", ready, "")
		f.readyTime = -1
		x.desire(after(of(role("app"), "2"), of(role("app"), "1")))
		x.expect(t, "app", starting, "version 2 is on trial until ")
		pass(roles.DefaultTrialPatience)
		if x.runs("app") != "1" || !strings.Contains(x.of("app").GetRolledBack().GetReason(), "neither Ready nor Degraded within 5m") {
			t.Errorf("status %v", x.of("app"))
		}
	})
}

// A role that is Degraded works, as far as anybody can tell.
func TestDegradedIsKept(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.upgraded(t)
		x.get("app").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "slow")
		x.expect(t, "app", degraded, "slow; version 2 is on trial")
		pass(roles.DefaultProbation)
		if got := x.of("app"); got.GetReason() != "slow" || x.runs("app") != "2" {
			t.Errorf("status %v", got)
		}
	})
}

func TestTriedAgain(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.upgraded(t)
		x.get("app").crash()
		x.expect(t, "app", ready, "")
		// By an operator.
		x.restart(t, "app")
		x.expect(t, "app", ready, "on trial")
		if x.runs("app") != "2" || x.of("app").GetRolledBack() != nil {
			t.Errorf("status %v", x.of("app"))
		}
		x.get("app").crash()
		pass(time.Minute)
		if x.runs("app") != "1" {
			t.Errorf("status %v", x.of("app"))
		}
		// Another version: what is before it did not come to work either, and is not gone back to.
		x.desire(after(of(role("app"), "3"), of(role("app"), "2")))
		synctest.Wait()
		if x.runs("app") != "3" || x.of("app").GetRolledBack() != nil || x.of("app").GetReason() != "" {
			t.Errorf("status %v", x.of("app"))
		}
		x.crash(t, "app", 1)
		if x.runs("app") != "3" {
			t.Errorf("version %s runs", x.runs("app"))
		}
		// The bad one again: the owner wants it.
		x.desire(after(of(role("app"), "2"), of(role("app"), "3")))
		synctest.Wait()
		if x.runs("app") != "2" {
			t.Errorf("version %s runs", x.runs("app"))
		}
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		x.desire(after(of(role("app"), "4"), of(role("app"), "2")))
		synctest.Wait()
		x.get("app").crash()
		pass(time.Minute)
		if x.runs("app") != "2" {
			t.Errorf("version %s runs", x.runs("app"))
		}
	})
}

func TestGoingBackIsKept(t *testing.T) {
	dir := t.TempDir()
	f := newFakes()
	upgraded := func() roles.DesiredRole { return after(of(role("app"), "2"), of(role("app"), "1")) }
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.upgraded(t)
		x.get("app").crash()
		x.expect(t, "app", ready, "")
	}, kept(filepath.Join(dir, "failures"), "boot"))
	// Another core, and another boot.
	for _, boot := range []string{"boot", "next"} {
		bubble(t, f, func(t *testing.T, x *fixture) {
			x.desire(upgraded())
			x.expect(t, "app", ready, "")
			if got := x.of("app").GetRolledBack(); x.runs("app") != "1" || got.GetVersion() != "2" || !strings.Contains(got.GetReason(), "signal 9") {
				t.Errorf("status %v", x.of("app"))
			}
		}, kept(filepath.Join(dir, "failures"), boot))
	}
	// So is what stood its trial.
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(after(of(role("app"), "3"), of(role("app"), "1")))
		pass(time.Minute)
	}, kept(filepath.Join(dir, "failures"), "boot"))
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(after(of(role("app"), "3"), of(role("app"), "1")))
		x.crash(t, "app", 1)
		if x.runs("app") != "3" || x.of("app").GetReason() != "" {
			t.Errorf("status %v", x.of("app"))
		}
	}, kept(filepath.Join(dir, "failures"), "boot"))
}

// A version that is not on the node does not even stop the one that runs, and runs as soon as it is there.
func TestExecutableIsNotHere(t *testing.T) {
	here := []string{"sha256:app1"}
	stored := func(c *roles.Config) { c.Stored = func(digest string) bool { return slices.Contains(here, digest) } }
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.upgraded(t)
		x.expect(t, "app", ready, "")
		got := x.of("app")
		if begun, _ := x.order(); len(begun) != 1 || got.GetRolledBack().GetVersion() != "2" || !strings.Contains(got.GetRolledBack().GetReason(), "reeve plugin add") {
			t.Errorf("status %v, launched %v", got, begun)
		}
		types, _ := x.events.take()
		if n := len(slices.DeleteFunc(types, func(kind string) bool { return kind != "RoleRolledBack" })); n != 1 {
			t.Errorf("%d events", n)
		}
		x.desire(after(of(role("app"), "2"), of(role("app"), "1")), role("other"))
		x.expect(t, "other", ready, "")
		if types, _ := x.events.take(); slices.Contains(types, "RoleRolledBack") {
			t.Error("told again")
		}
		here = append(here, "sha256:app2")
		x.desire(after(of(role("app"), "2"), of(role("app"), "1")))
		x.expect(t, "app", ready, "on trial")
		if x.runs("app") != "2" || x.of("app").GetRolledBack() != nil {
			t.Errorf("status %v", x.of("app"))
		}
		// The one before is not here any more: there is nothing to go back to.
		here = here[1:]
		x.get("app").crash()
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		if x.runs("app") != "2" {
			t.Errorf("status %v", x.of("app"))
		}
	}, stored)
	// One that stood its trial here and is gone is missed: to take its file away is no way to have an older version run.
	here = []string{"sha256:app1", "sha256:app2"}
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.upgraded(t)
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		here = here[:1]
		x.desire(after(of(role("app"), "2"), of(role("app"), "1")))
		pass(time.Minute)
		if x.runs("app") != "2" || x.of("app").GetRolledBack() != nil {
			t.Errorf("it went back: status %v", x.of("app"))
		}
	}, stored)
	// A version without the role, too.
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(of(role("app"), "1"))
		x.expect(t, "app", ready, "")
		without := of(role("app"), "2")
		without.Plugin.Manifest = &rolev1.Manifest{Name: "app", Roles: []*rolev1.RoleManifest{{Name: "another"}}}
		x.desire(after(without, of(role("app"), "1")))
		x.expect(t, "app", ready, "")
		if begun, _ := x.order(); len(begun) != 1 || !strings.Contains(x.of("app").GetRolledBack().GetReason(), "does not offer the role") {
			t.Errorf("status %v, launched %v", x.of("app"), begun)
		}
	})
}

// What the version that runs requires and provides is what counts, and not what the catalog's would.
func TestPlansForTheVersionInForce(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		before := providing(of(role("app"), "1"), "x.app")
		x.desire(before, role("behind", "x.app"))
		x.expect(t, "behind", ready, "")
		upgraded := after(of(role("app", "store"), "2"), providing(of(role("app"), "1"), "x.app"))
		x.desire(upgraded, role("behind", "x.app"), role("store"))
		x.expect(t, "behind", blocked, "requires x.app, which no role of this node that may run provides")
		x.expect(t, "app", ready, "on trial")
		x.get("app").crash()
		x.expect(t, "app", ready, "")
		x.expect(t, "behind", ready, "")
		x.desire(upgraded, role("behind", "x.app"))
		x.expect(t, "app", ready, "")
		if _, ok := capabilitiesOf(x)["x.app"]; !ok {
			t.Error("x.app is not provided")
		}
	})
}

func capabilitiesOf(x *fixture) roles.Capabilities {
	now, _ := x.Capabilities().Get()
	return now
}

func TestBar(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		if x.Bar("app", "no") {
			t.Error("a role that runs was barred")
		}
		if !x.Bar("other", "its data is being removed") {
			t.Fatal("a role that is not there was not barred")
		}
		x.desire(role("app"), role("other"))
		x.expect(t, "other", blocked, "its data is being removed")
		x.Unbar("other")
		x.expect(t, "other", ready, "")
		x.stopTime = time.Minute
		x.desire(role("app"))
		synctest.Wait()
		if x.Bar("other", "no") {
			t.Error("a role that stops was barred")
		}
		pass(time.Minute)
		if !x.Bar("other", "no") {
			t.Error("a role that has stopped was not barred")
		}
	})
}

func TestStopReasons(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		told := func(want rolev1.StopReason, name string) {
			t.Helper()
			synctest.Wait()
			x.mu.Lock()
			defer x.mu.Unlock()
			if got := x.reasons[name]; got != want {
				t.Errorf("%s was stopped for %s, not %s", name, got, want)
			}
		}
		x.desire(role("app"), role("other"), role("held"))
		synctest.Wait()
		x.desire(configured(role("app"), "{}", 2), held(role("held"), "not now"))
		told(rolev1.StopReason_STOP_REASON_RESTART, "app")
		told(rolev1.StopReason_STOP_REASON_REMOVED, "other")
		told(rolev1.StopReason_STOP_REASON_NODE, "held")
		x.desire(configured(role("app"), "{}", 2), role("other"))
		synctest.Wait()
		x.restart(t, "other")
		told(rolev1.StopReason_STOP_REASON_RESTART, "other")
		x.cancel()
		told(rolev1.StopReason_STOP_REASON_NODE, "app")
		told(rolev1.StopReason_STOP_REASON_NODE, "other")
	})
}

// A role that ends with an error when it is taken away is not gone without a word, and is no longer in anybody's way.
func TestWhatARoleLeft(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"), role("other"))
		synctest.Wait()
		x.farewell = "the block was not removed"
		x.desire(role("other"))
		synctest.Wait()
		if got := x.of("app"); got.GetState() != hostv1.InstanceState_INSTANCE_STATE_STOPPED || !strings.Contains(got.GetReason(), "the block was not removed") || got.GetPid() != 0 {
			t.Errorf("the role is %v", got)
		}
		if !x.Bar("app", "no") {
			t.Error("a role that was taken away was not barred")
		}
		x.Unbar("app")
		x.desire(role("other"), role("app"))
		synctest.Wait()
		if got := x.of("app"); got.GetState() != ready {
			t.Errorf("the role is %v", got)
		}
		x.farewell = ""
		x.desire(role("other"))
		synctest.Wait()
		if got := x.of("app"); got != nil {
			t.Errorf("the role is %v", got)
		}
	})
}

func TestTier(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		granted := role("granted")
		granted.Plugin.Grants[0].Grants = []*rolev1.Grant{{Name: "read-path", Parameters: map[string]string{"path": "/srv"}}}
		x.desire(role("app"), granted, held(role("later"), "not now"))
		synctest.Wait()
		for name, want := range map[string]clusterv1.Tier{
			"app": clusterv1.Tier_TIER_CONFINED, "granted": clusterv1.Tier_TIER_GRANTED, "later": clusterv1.Tier_TIER_CONFINED,
		} {
			if got := x.of(name).GetTier(); got != want {
				t.Errorf("%s is %s", name, got)
			}
		}
	})
}
