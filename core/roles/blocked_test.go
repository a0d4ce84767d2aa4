package roles_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const lacksNFT = "the machine has no nft"

// block has the role say that its machine keeps it from its work.
func (x *fixture) block(role string) {
	x.get(role).say(rolev1.RoleState_ROLE_STATE_BLOCKED, lacksNFT)
	synctest.Wait()
}

// work has the role say that it does its work.
func (x *fixture) work(role string) {
	x.get(role).say(rolev1.RoleState_ROLE_STATE_READY, "")
	synctest.Wait()
}

// A role that its machine keeps Blocked runs, is looked after, and meets nobody's requirement. It has not failed.
func TestBlockedByTheMachine(t *testing.T) {
	f := newFakes()
	f.readyTime = -1
	var took []string
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"), role("behind", "app"))
		synctest.Wait()
		x.block("app")
		x.expect(t, "app", blocked, lacksNFT)
		x.expect(t, "behind", blocked, "waits for app: role app is Blocked")
		if got := x.of("app"); got.GetPid() == 0 || got.GetInstanceId() != "node/app/1" || got.GetReason() != lacksNFT {
			t.Errorf("status %v", got)
		}
		pass(time.Hour)
		x.expect(t, "app", blocked, lacksNFT)
		if asked := x.get("app").asked.Load(); asked < 700 {
			t.Errorf("it was asked %d times whether it is well", asked)
		}
		x.work("app")
		x.expect(t, "app", ready, "")
		synctest.Wait()
		x.work("behind")
		// It is Blocked once more, and who requires it runs on.
		x.block("app")
		x.expect(t, "app", blocked, lacksNFT)
		x.expect(t, "behind", ready, "")
		if got := x.of("app"); got.GetInstanceId() != "node/app/1" || got.GetRestarts() != 0 || got.GetLastFailure() != nil {
			t.Errorf("status %v", got)
		}
		// How long the machine took is not how long the launch did.
		if !slices.Equal(took, []string{"behind"}) {
			t.Errorf("launches were timed of %v", took)
		}
		// What does not answer is ended, Blocked or not.
		x.get("app").feel(errSilent)
		pass(roles.DefaultLivenessInterval + roles.DefaultLivenessTimeout + time.Second)
		if got := x.of("app"); got.GetInstanceId() == "node/app/1" || got.GetLastFailure() == nil {
			t.Errorf("status %v", got)
		}
		x.block("app")
		x.get("app").crash()
		pass(time.Second)
		if got := x.of("app"); got.GetLastFailure().GetFailures() != 2 || got.GetState() != starting {
			t.Errorf("status %v", got)
		}
	}, func(c *roles.Config) {
		c.Launched = func(role string, _ time.Duration) { took = append(took, role) }
	})
}

func TestEventsOfABlockedInstance(t *testing.T) {
	f := newFakes()
	f.readyTime = -1
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		synctest.Wait()
		x.block("app")
		pass(9 * time.Second)
		x.expectEvents(t, "RoleStarted")
		pass(time.Second)
		event := x.expectEvents(t, "RoleBlocked")["RoleBlocked"]
		if event.GetSeverity() != nodev1.Severity_SEVERITY_WARNING || event.GetInstanceId() != "node/app/1" ||
			event.GetMessage() != "role app is Blocked: "+lacksNFT || event.GetDetails()["reason"] != lacksNFT {
			t.Errorf("event %v", event)
		}
		pass(time.Hour)
		x.get("app").say(rolev1.RoleState_ROLE_STATE_BLOCKED, "the machine has no containerd")
		pass(time.Hour)
		x.work("app")
		x.expectEvents(t, "RoleReady")
		// For a moment is no news.
		x.block("app")
		pass(9 * time.Second)
		x.work("app")
		pass(time.Hour)
		x.expectEvents(t)
		x.block("app")
		pass(10 * time.Second)
		x.expectEvents(t, "RoleBlocked")
		// What goes on and off all the time is told as rarely as what is Degraded now and then.
		for range 20 {
			x.work("app")
			x.block("app")
			pass(10 * time.Second)
		}
		if types, _ := x.events.take(); len(types) < 2 || len(types) > 10 {
			t.Errorf("%d events: %v", len(types), types)
		}
	})
}

// A core that finds a Blocked role shows it so, and tells nothing of it again.
func TestAdoptedBlocked(t *testing.T) {
	adopting(t, func(t *testing.T, f *fakes, run func(...func(*roles.Config)) *fixture) {
		f.get("app").say(rolev1.RoleState_ROLE_STATE_BLOCKED, lacksNFT)
		timed := false
		x := run(func(c *roles.Config) { c.Launched = func(string, time.Duration) { timed = true } })
		x.expect(t, "app", blocked, lacksNFT)
		x.desire(role("app"))
		pass(time.Hour)
		x.expect(t, "app", blocked, lacksNFT)
		x.expectEvents(t, "RoleAdopted")
		x.work("app")
		x.expect(t, "app", ready, "")
		x.expectEvents(t, "RoleReady")
		if timed || f.launches != 1 {
			t.Errorf("a launch was timed: %v, %d launches", timed, f.launches)
		}
		if err := x.end(); err != nil {
			t.Error(err)
		}
	}, role("app"))
}

// The trial of a version stands still while the machine keeps the role from showing what it can do.
func TestTrialWhileBlocked(t *testing.T) {
	upgraded := func() roles.DesiredRole { return after(of(role("app"), "2"), of(role("app"), "1")) }
	for name, before := range inorder.Of(map[string]func(*testing.T, *fixture){
		"the version before was Blocked too": func(_ *testing.T, x *fixture) {
			x.desire(of(role("app"), "1"))
			synctest.Wait()
			x.work("app")
			pass(time.Hour)
			x.block("app")
		},
		"the version before was Starting": func(_ *testing.T, x *fixture) {
			x.desire(of(role("app"), "1"))
			pass(time.Hour)
		},
		"the version before has failed": func(_ *testing.T, x *fixture) {
			x.desire(of(role("app"), "1"))
			synctest.Wait()
			x.work("app")
			x.get("app").crash()
			synctest.Wait()
		},
		"no version ran here before": func(*testing.T, *fixture) {},
	}) {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			f.readyTime = -1
			bubble(t, f, func(t *testing.T, x *fixture) {
				before(t, x)
				x.desire(upgraded())
				synctest.Wait()
				x.block("app")
				pass(10 * roles.DefaultTrialPatience)
				x.expect(t, "app", blocked, lacksNFT+"; version 2 is on trial; the trial is paused while the role is Blocked")
				if x.runs("app") != "2" || x.of("app").GetRolledBack() != nil {
					t.Fatalf("status %v", x.of("app"))
				}
				// It has its whole time from then on, and the whole of its probation after it.
				x.get("app").say(rolev1.RoleState_ROLE_STATE_STARTING, "")
				pass(roles.DefaultTrialPatience - time.Second)
				x.work("app")
				pass(roles.DefaultProbation - time.Second)
				x.expect(t, "app", ready, "version 2 is on trial until ")
				x.block("app")
				pass(10 * roles.DefaultTrialPatience)
				x.work("app")
				pass(roles.DefaultProbation - time.Second)
				x.expect(t, "app", ready, "version 2 is on trial until ")
				pass(time.Second)
				if got := x.of("app"); x.runs("app") != "2" || got.GetReason() != "" {
					t.Errorf("status %v", got)
				}
			})
		})
	}
	t.Run("it fails then", func(t *testing.T) {
		f := newFakes()
		f.readyTime = -1
		bubble(t, f, func(t *testing.T, x *fixture) {
			x.desire(upgraded())
			synctest.Wait()
			x.block("app")
			pass(time.Hour)
			x.get("app").say(rolev1.RoleState_ROLE_STATE_STARTING, "")
			pass(roles.DefaultTrialPatience)
			if x.runs("app") != "1" || !strings.Contains(x.of("app").GetRolledBack().GetReason(), "neither Ready nor Degraded within 5m") {
				t.Errorf("status %v", x.of("app"))
			}
		})
	})
}

// The machine was good enough for the version before: what is Blocked there has not come to work.
func TestBlockedWhereTheVersionBeforeWorked(t *testing.T) {
	for name, first := range inorder.Of(map[string]func(x *fixture){
		"at once":     func(*fixture) {},
		"when it ran": func(x *fixture) { x.work("app"); pass(roles.DefaultProbation - time.Second) },
		"now and then": func(x *fixture) {
			x.block("app")
			pass(roles.DefaultTrialPatience - time.Second)
			x.work("app")
			pass(time.Second)
		},
	}) {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			f.readyTime = -1
			bubble(t, f, func(t *testing.T, x *fixture) {
				x.desire(of(role("app"), "1"))
				synctest.Wait()
				x.work("app")
				pass(time.Hour)
				x.desire(after(of(role("app"), "2"), of(role("app"), "1")))
				synctest.Wait()
				first(x)
				x.block("app")
				pass(roles.DefaultTrialPatience - time.Second)
				x.expect(t, "app", blocked, lacksNFT+"; version 2 is on trial until ")
				if x.runs("app") != "2" {
					t.Fatalf("status %v", x.of("app"))
				}
				pass(time.Second)
				want := "it was neither Ready nor Degraded within 5m, where version 1 was, but Blocked: " + lacksNFT
				if back := x.of("app").GetRolledBack(); x.runs("app") != "1" || back.GetReason() != want {
					t.Errorf("status %v", x.of("app"))
				}
			})
		})
	}
}

// A role has the time to stop that its manifest says, and otherwise what is usual.
func TestStopGrace(t *testing.T) {
	slow := func() roles.DesiredRole {
		d := role("slow")
		d.Plugin.Manifest.Roles[0].StopGrace = durationpb.New(3 * time.Minute)
		return d
	}
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(slow(), role("app"))
		x.expect(t, "slow", ready, "")
		if x.of("slow").GetStopGrace().AsDuration() != 3*time.Minute || x.of("app").StopGrace != nil {
			t.Errorf("shown: %v and %v", x.of("slow").GetStopGrace(), x.of("app").GetStopGrace())
		}
		for range 2 {
			x.restart(t, "slow")
			x.restart(t, "app")
			synctest.Wait()
			if got := x.graces["slow"]; got != 3*time.Minute {
				t.Errorf("it had %s", got)
			}
			if got := x.graces["app"]; got != 7*time.Second {
				t.Errorf("the other one had %s", got)
			}
			clear(x.graces)
		}
		// One that does not answer does not get it.
		x.get("slow").feel(errSilent)
		pass(roles.DefaultLivenessInterval + roles.DefaultLivenessTimeout)
		if got := x.graces["slow"]; got > 2*time.Second {
			t.Errorf("it had %s, and did not answer", got)
		}
	}, func(c *roles.Config) { c.Grace = 7 * time.Second })
}
