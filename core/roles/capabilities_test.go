package roles_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const capability = "reeve.cluster.v1"

// provider is the role that has the capability at present; empty: none.
func (x *fixture) provider() string {
	synctest.Wait()
	now, _ := x.Capabilities().Get()
	return now[capability].Role
}

// A role that claims what another one provides does not get it: neither by its name, nor by being Ready first, nor while the other
// one restarts.
func TestNewcomersDisplaceNobody(t *testing.T) {
	f := newFakes()
	f.readyTime = -1
	bubble(t, f, func(t *testing.T, x *fixture) {
		expect := func(want string) {
			t.Helper()
			if got := x.provider(); got != want {
				t.Errorf("provided by %q, want %q", got, want)
			}
		}
		curator := func() roles.DesiredRole { return providing(role("curator"), capability) }
		newcomer := func() roles.DesiredRole { return configured(providing(role("acurator"), capability), "", 2) }
		x.desire(curator())
		pass(time.Second)
		expect("curator")
		x.desire(newcomer(), curator())
		pass(time.Second)
		x.get("acurator").say(rolev1.RoleState_ROLE_STATE_READY, "")
		expect("curator")
		// It restarts: nobody provides the capability meanwhile.
		x.get("curator").crash()
		expect("")
		x.expect(t, "curator", backoff, "")
		pass(time.Minute)
		expect("curator")
		// Its own configuration or plugin changes.
		x.desire(newcomer(), configured(curator(), `{"a":1}`, 3))
		pass(time.Minute)
		expect("curator")
		// It may not run any more: the other one takes over, and keeps it in turn.
		x.desire(newcomer(), held(curator(), "not now"))
		pass(time.Second)
		expect("acurator")
		x.desire(newcomer(), curator())
		pass(time.Second)
		expect("acurator")
		x.desire(curator())
		pass(time.Second)
		expect("curator")
		x.desire()
		pass(time.Minute)
		expect("")
	})
}

// When a core starts, what was assigned first goes first, whoever is up sooner.
func TestTheFirstAssignedProvides(t *testing.T) {
	f := newFakes()
	f.readyTime = -1
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(configured(providing(role("acurator"), capability), "", 7), providing(role("curator", "store"), capability), role("store"))
		pass(time.Second)
		x.get("acurator").say(rolev1.RoleState_ROLE_STATE_READY, "")
		if got := x.provider(); got != "" {
			t.Errorf("provided by %q", got)
		}
		x.get("store").say(rolev1.RoleState_ROLE_STATE_READY, "")
		pass(time.Second)
		if got := x.provider(); got != "curator" {
			t.Errorf("provided by %q", got)
		}
	})
}
