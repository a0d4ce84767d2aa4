package howto_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// TestBackUpAndRestore follows the page "Back up and restore": the only machine with the store is lost with its disk, and another node is left.
func TestBackUpAndRestore(t *testing.T) {
	r := newReader(t, "docs/how-to/back-up-and-restore.md")
	first, worker := r.lab.Machine(t, "first", "192.0.2.10"), r.lab.Machine(t, "worker", "192.0.2.30")
	first.PowerOff(t)
	first.Keep(t) // an empty disk
	first.PowerOn(t)
	r.machines["first"] = first
	r.firstNode(first)
	r.join("", worker)
	lost, left := r.id(first), r.id(worker)
	status, err := devcluster.ParseStatus(first.Must(t, "reeve status -o json").Stdout)
	if err != nil {
		t.Fatal(err)
	}
	r.names["5f0c8a"] = func() string { return status.Cluster.ID }
	r.names["reeve-6f1c"] = func() string { return lost }

	r.events["a-recovery-key"] = func() {
		r.names["age1ql3z7hj"] = func() string {
			var made struct {
				Recipient string `json:"recipient"`
			}
			// The command of the page has printed it.
			if err := json.Unmarshal([]byte(r.desk.Must(t, "grep -o 'age1[0-9a-z]*' recovery.key | head -1 | sed 's/.*/{\"recipient\":\"&\"}/'").Stdout), &made); err != nil {
				t.Fatal(err)
			}
			return made.Recipient
		}
	}
	r.desk.Must(t, "reeve operator key alice.key > alice.pub && reeve operator add alice --role operator --public-key alice.pub")
	r.events["all-machines-are-lost"] = func() {
		r.desk.Must(t, "reeve operator revoke alice")
		r.desk.Must(t, "reeve node label "+left+" written=later")
		first.PowerOff(t)
		worker.PowerOff(t)
		first.Restore(t)
		first.PowerOn(t)
	}
	r.events["the-cluster-is-back"] = func() {
		r.home(first)
		// The machine has another network card now, and says nothing of it to its neighbours.
		r.desk.Must(t, "ip neigh flush all")
	}
	r.events["a-former-node-comes-back"] = func() {
		if list := r.desk.Must(t, "reeve node list -o json").Stdout; strings.Contains(list, `"later"`) {
			t.Error("what was written after the snapshot is there")
		}
		worker.PowerOn(t)
		r.in(worker, "Home")
		r.desk.Must(t, "reeve wait "+left+" --for membership=Home --for healthy")
	}
	r.follow()
	if state := r.state(lost); state != "Decommissioned" {
		t.Errorf("the node that was deleted is %s", state)
	}
}
