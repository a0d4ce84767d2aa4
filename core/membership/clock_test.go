package membership

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
)

// A cluster is not made by a machine that does not know the time: its certificates would be of no use once somebody tells it.
func TestNoClusterIsMadeInThePast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path, seal.Formed)
		defer b.stop()
		b.setClock(time.Unix(60, 0))
		p := &provider{}
		b.capabilities.Set(roles.Capabilities{
			roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: p}, roles.CapabilityCluster: {InstanceID: "n1/api/1", Role: "api", Conn: p},
		})
		time.Sleep(time.Hour)
		b.expect(t, Bootstrapping, "it says 1970-01-01")
		if p.bootstraps != 0 || b.phase(t) != seal.Formed {
			t.Fatalf("%d bootstraps, phase %s", p.bootstraps, b.phase(t))
		}
		b.setClock(time.Date(2031, time.March, 1, 0, 0, 0, 0, time.UTC))
		time.Sleep(10 * time.Second)
		b.expect(t, Bootstrapping, "first contact")
		if p.bootstraps != 1 || b.phase(t) != seal.Member {
			t.Errorf("%d bootstraps, phase %s", p.bootstraps, b.phase(t))
		}
		b.contact.Set(Contact{OK: true})
		b.expect(t, Home, "member")
	})
}

// What contact says of the clock is what the node's state says.
func TestAWrongClockIsSeenInTheState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path, seal.Member)
		defer b.stop()
		const reason = "it says 1970-01-01T00:01:00Z"
		b.contact.Set(Contact{Reason: reason})
		b.expect(t, Split, reason)
		b.contact.Set(Contact{OK: true})
		b.expect(t, Home, "member of the cluster")
		b.contact.Set(Contact{OK: true, Reason: reason})
		b.expect(t, Home, reason)
	})
}

// A restore is refused by a machine that does not know the time, before anything is made.
func TestCheckClock(t *testing.T) {
	if err := CheckClock(time.Unix(60, 0)); err == nil || !strings.Contains(err.Error(), "it says 1970-01-01: set the clock right, and run `reeved restore` again") {
		t.Errorf("in the past: %v", err)
	}
	if err := CheckClock(time.Date(2031, time.March, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Error(err)
	}
}
