package roles_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// launched launches instances for what is desired, as an earlier core did.
func (f *fakes) launched(t *testing.T, desired ...roles.DesiredRole) (running []roles.Running) {
	t.Helper()
	for n, d := range desired {
		spec := plugin.Spec{
			Role: d.Assignment.GetRole(), Plugin: d.Plugin, Configuration: d.Assignment.GetConfiguration(), Generation: d.Assignment.GetGeneration(),
			Restarts: uint32(n + 1),
		}
		remit, err := f.Prepare(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		instance, err := f.Launch(t.Context(), remit, spec, "")
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, instance)
	}
	synctest.Wait() // until they are Ready
	return running
}

// adopting is a bubble whose reconciler begins with instances.
func adopting(t *testing.T, test func(t *testing.T, f *fakes, run func(settings ...func(*roles.Config)) *fixture), desired ...roles.DesiredRole) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakes()
		running := f.launched(t, desired...)
		test(t, f, func(settings ...func(*roles.Config)) *fixture {
			return run(t, f, append(settings, func(c *roles.Config) { c.Adopted = running })...)
		})
	})
}

func TestAdoptedIsShownFromTheBeginning(t *testing.T) {
	store := providing(role("store"), roles.CapabilityConsensus)
	adopting(t, func(t *testing.T, f *fakes, _ func(...func(*roles.Config)) *fixture) {
		r := roles.New(quiet(roles.Config{
			Log: hclog.NewNullLogger(), Launcher: f, Hosts: f, Desired: new(event.Value[roles.Desired]),
			Adopted: []roles.Running{f.get("app"), f.get("store")},
		}))
		now, set := r.Instances().Get()
		if !set || len(now) != 2 || now[0].Remit == nil || now[0].Process.PID != f.get("app").pid || now[0].Status.GetState() != ready {
			t.Errorf("before Run: %v", now)
		}
		// By this the node keeps it, whatever the catalog has by now.
		if digest := now[0].Status.GetDigest(); digest != "sha256:app" {
			t.Errorf("its executable is %q", digest)
		}
	}, store, role("app"))
}

// A state lasts since it was first shown, whichever core did, and one that is new lasts since it was seen.
func TestAdoptedIsInItsStateSinceBefore(t *testing.T) {
	adopting(t, func(t *testing.T, f *fakes, run func(...func(*roles.Config)) *fixture) {
		before := time.Now().Add(-3 * time.Hour)
		f.get("same").KeepState(ready, before)
		f.get("other").KeepState(starting, before)
		x := run()
		now := time.Now()
		for name, want := range map[string]time.Time{"same": before, "other": now, "unknown": now} {
			if since := x.of(name).GetSince().AsTime(); !since.Equal(want) {
				t.Errorf("%s is Ready since %s, want %s", name, since, want)
			}
		}
		// The core after this one is told the same.
		x.desire(role("same"), role("other"), role("unknown"))
		pass(time.Minute)
		f.get("same").say(rolev1.RoleState_ROLE_STATE_DEGRADED, "")
		synctest.Wait()
		for name, want := range map[string]keptState{"same": {degraded, now.Add(time.Minute)}, "other": {ready, now}, "unknown": {ready, now}} {
			if state, since := f.get(name).KeptState(); state != want.state || !since.Equal(want.since) {
				t.Errorf("of %s %s since %s is kept, want %v", name, state, since, want)
			}
		}
		if err := x.end(); err != nil {
			t.Error(err)
		}
	}, role("same"), role("other"), role("unknown"))
}

func TestAdoptedGoesOn(t *testing.T) {
	store := providing(role("store"), roles.CapabilityConsensus)
	adopting(t, func(t *testing.T, f *fakes, run func(...func(*roles.Config)) *fixture) {
		x := run(budget(0, time.Hour))
		pass(time.Hour)
		if types, _ := x.events.take(); fmt.Sprint(types) != "[RoleAdopted RoleAdopted]" {
			t.Errorf("events %v", types)
		}
		x.expect(t, "store", ready, "")
		x.desire(store, role("app"))
		x.expect(t, "store", ready, "")
		x.expect(t, "app", ready, "")
		capabilities, _ := x.Capabilities().Get()
		if f.launches != 2 || f.sockets != 2 || len(capabilities) != 3 {
			t.Errorf("%d launches, %d host sockets, %v", f.launches, f.sockets, capabilities)
		}
		if s := x.of("app"); s.GetRestarts() != 2 || !s.GetStarted().AsTime().Equal(f.get("app").Launched()) || s.GetPluginVersion() != "1.0.0" {
			t.Errorf("status %v", s)
		}
		if types, _ := x.events.take(); len(types) > 0 {
			t.Errorf("events %v of what is nothing new", types)
		}
		// It is asked whether it is well, its end is noticed, and counted.
		pass(roles.DefaultLivenessInterval)
		if f.get("app").asked.Load() == 0 {
			t.Error("nobody asks it")
		}
		f.get("app").crash()
		x.expect(t, "app", failed, "and 0 are allowed")
		if err := x.end(); err != nil {
			t.Error(err)
		}
	}, store, role("app"))
}

func TestAdoptedAsNotDesired(t *testing.T) {
	adopting(t, func(t *testing.T, f *fakes, run func(...func(*roles.Config)) *fixture) {
		x := run()
		before := f.get("changed")
		x.desire(configured(role("changed"), `{"a":1}`, 2), held(role("held"), "for a while"))
		pass(time.Second)
		x.expect(t, "changed", ready, "")
		if f.get("changed") == before || f.get("gone") != nil || f.get("held") != nil || x.of("gone") != nil {
			t.Error("not what is desired")
		}
		x.expect(t, "held", blocked, "for a while")
		if _, ended := f.order(); len(ended) != 3 {
			t.Errorf("stopped %v", ended)
		}
		if err := x.end(); err != nil {
			t.Error(err)
		}
	}, role("changed"), role("gone"), role("held"))
}

// A role that has no host socket is started again.
func TestAdoptedWithoutHostSocket(t *testing.T) {
	adopting(t, func(t *testing.T, f *fakes, run func(...func(*roles.Config)) *fixture) {
		f.openError = fmt.Errorf("no room")
		x := run()
		synctest.Wait()
		before := f.get("app")
		f.openError = nil
		x.desire(role("app"))
		pass(time.Second)
		if f.get("app") == before || f.sockets != 1 {
			t.Error("it was not started again")
		}
		if err := x.end(); err != nil {
			t.Error(err)
		}
	}, role("app"))
}

func TestGateKeepsFromStartingAndNotFromRunning(t *testing.T) {
	adopting(t, func(t *testing.T, f *fakes, run func(...func(*roles.Config)) *fixture) {
		x := run()
		gated := func(d roles.DesiredRole) roles.DesiredRole {
			d.Gate = "waits for the cluster"
			return d
		}
		x.desire(gated(role("app")), gated(role("other")), role("dependent", "other"))
		pass(time.Minute)
		x.expect(t, "app", ready, "")
		x.expect(t, "other", blocked, "waits for the cluster")
		x.expect(t, "dependent", blocked, "waits for other: role other is Blocked")
		f.get("app").crash()
		pass(time.Minute)
		x.expect(t, "app", blocked, "waits for the cluster")
		x.desire(role("app"), role("other"), role("dependent", "other"))
		pass(time.Second)
		for _, role := range []string{"app", "other", "dependent"} {
			x.expect(t, role, ready, "")
		}
		if err := x.end(); err != nil {
			t.Error(err)
		}
	}, role("app"))
}

func TestLeave(t *testing.T) {
	tied := role("tied", "store")
	tied.Plugin.Manifest.Roles[0].EndsWithCore = true
	desired := []roles.DesiredRole{role("store"), tied, role("app", "tied")}
	synctest.Test(t, func(t *testing.T) {
		f := newFakes()
		x := &fixture{fakes: f, desired: new(event.Value[roles.Desired]), result: make(chan error, 1)}
		x.Reconciler = roles.New(quiet(roles.Config{Log: hclog.NewNullLogger(), Launcher: f, Hosts: f, Desired: x.desired, Events: &x.events}))
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { x.result <- x.Run(ctx) }()
		x.desire(desired...)
		pass(time.Second)
		before := map[string]*fake{"store": f.get("store"), "app": f.get("app")}
		cancel(roles.ErrLeave)
		if err := <-x.result; err != nil {
			t.Error(err)
		}
		for name, instance := range before {
			if f.get(name) != instance || !instance.left.Load() {
				t.Errorf("role %s was not left", name)
			}
			// Others that look must not take it for gone.
			if x.of(name).GetState() != ready {
				t.Errorf("role %s is shown as %v", name, x.of(name))
			}
		}
		if f.get("tied") != nil || x.of("tied") != nil {
			t.Error("the role that ends with its core was left")
		}
	})
}
