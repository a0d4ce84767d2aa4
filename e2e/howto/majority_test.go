package howto_test

import (
	"encoding/json"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/lab"
)

// TestBringBackALostMajority switches two of three machines off, and follows the page.
func TestBringBackALostMajority(t *testing.T) {
	r := newReader(t, "docs/how-to/bring-back-a-lost-majority.md")
	first, back, dead := r.lab.Machine(t, "first", "192.0.2.10"), r.lab.Machine(t, "back", "192.0.2.11"), r.lab.Machine(t, "dead", "192.0.2.20")
	r.firstNode(first)
	r.join("--role consensus --role curator", back, dead)
	r.calls("reeve-6f1c", dead)
	r.calls("reeve-02ab", first)
	r.machines["survivor"] = first
	id := r.names["reeve-6f1c"]()
	vote := func(machines ...*lab.Machine) {
		t.Helper()
		for _, machine := range machines {
			var document struct {
				Store struct {
					Quorum  bool              `json:"quorum"`
					Voter   bool              `json:"voter"`
					Members []json.RawMessage `json:"members"`
				} `json:"store"`
			}
			eventually.True(t, patience, machine.Name+" votes", func() (bool, string) {
				result := machine.Run(t, "reeve store status -o json")
				err := json.Unmarshal([]byte(result.Stdout), &document)
				return err == nil && document.Store.Quorum && document.Store.Voter && len(document.Store.Members) == len(machines), result.String()
			})
		}
	}
	vote(first, back, dead)

	r.events["two-machines-are-gone"] = func() {
		dead.PowerOff(t)
		back.PowerOff(t)
	}
	r.events["the-cluster-goes-on"] = func() {
		r.home(first)
		r.desk.Must(t, "reeve node label "+r.id(first)+" recovered=yes")
	}
	r.events["one-comes-back"] = func() {
		back.PowerOn(t)
		vote(first, back)
		r.home(back)
		r.sick(dead, id)
		back.Must(t, "test -d /var/lib/reeve/data/roles/consensus/former/etcd")
	}
	r.follow()
	if state := r.state(id); state != "Decommissioned" {
		t.Errorf("the node that was deleted is %s", state)
	}
	vote(first, back)
}
