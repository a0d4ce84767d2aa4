package howto_test

import (
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/lab"
)

// TestReplaceADeadNode follows the page "Replace a dead node": a machine that is gone and comes back as another node, a disk that was restored, and a clone.
func TestReplaceADeadNode(t *testing.T) {
	r := newReader(t, "docs/how-to/replace-a-dead-node.md")
	first, second, dead := r.lab.Machine(t, "first", "192.0.2.10"), r.lab.Machine(t, "second", "192.0.2.11"), r.lab.Machine(t, "dead", "192.0.2.20")
	worker := r.lab.Machine(t, "worker", "192.0.2.30")
	r.firstNode(first)
	r.join("--role consensus --role curator", second, dead)
	r.join("", worker)
	r.calls("reeve-6f1c", dead)
	r.calls("reeve-02ab", first)
	id := r.names["reeve-6f1c"]()
	eventually.True(t, patience, "three nodes have the store and the cluster API", func() (bool, string) {
		result := r.desk.Must(t, "reeve node list")
		for _, machine := range []*lab.Machine{first, second, dead} {
			for _, role := range []string{"consensus", "curator"} {
				if !r.listed(r.id(machine)).ready(role) {
					return false, result.String()
				}
			}
		}
		return true, ""
	})

	r.events["the-machine-is-gone"] = func() {
		dead.PowerOff(t)
		r.sick(dead, id)
	}
	r.events["it-is-deleted"] = func() {
		if state := r.state(id); state != "Decommissioned" {
			t.Errorf("the node that was deleted is %s", state)
		}
	}
	r.events["the-machine-comes-back"] = func() {
		r.machines["back"] = dead
		dead.PowerOn(t)
		r.awaits(dead, "Disowning", "")
	}
	r.events["it-is-a-node-again"] = func() {
		r.awaits(dead, "Foreign", "approval")
		again := r.id(dead)
		if again == id {
			t.Error("the machine has the key of the node that was deleted")
		}
		r.desk.Must(t, "reeve node approve "+again)
		r.home(dead)
		r.desk.Must(t, "reeve wait "+again+" --for membership=Home --for healthy")
	}
	r.events["an-older-disk"] = func() {
		r.calls("reeve-6f1c", worker)
		_ = r.names["reeve-6f1c"]()
		worker.PowerOff(t)
		worker.Keep(t)
		for range 2 {
			worker.PowerOn(t)
			r.home(worker)
			worker.PowerOff(t)
		}
		worker.Restore(t)
		worker.PowerOn(t)
		r.machines["restored"] = worker
	}
	r.events["the-list-shows-it"] = func() {
		eventually.True(t, patience, "the list of nodes shows it as the node's problem", func() (bool, string) {
			problem := r.listed(r.names["reeve-6f1c"]()).Problem
			return strings.Contains(problem, "older copy"), problem
		})
	}
	r.events["it-is-home-again"] = func() { r.home(worker) }
	r.events["two-machines-of-one-disk"] = func() {
		worker.PowerOff(t)
		clone := worker.Clone(t, "clone", "192.0.2.31")
		// Like machines that get their addresses from the network: what names the first one's is another here.
		parameters := clone.File("/etc/reeve/node.yaml")
		content, err := os.ReadFile(parameters)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(parameters, []byte(strings.ReplaceAll(string(content), worker.Address, clone.Address)), 0o644); err != nil {
			t.Fatal(err)
		}
		clone.PowerOn(t)
		r.home(clone)
		worker.PowerOn(t)
		r.awaits(worker, "Split", "another machine runs with")
		clone.PowerOff(t)
	}
	r.events["the-other-one-is-the-node"] = func() { r.home(worker) }
	r.follow()
}
