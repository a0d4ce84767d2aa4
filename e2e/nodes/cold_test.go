package nodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestFromColdByRecovery stops all nodes of a cluster whose volumes are all encrypted, and starts them at once: nobody has a key that the cluster keeps, since there is no
// cluster yet. The owner's recovery key opens a majority, and the cluster that this makes opens the rest, as far as its policy allows it.
func TestFromColdByRecovery(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a volume is mounted")
	}
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--volume", "fscrypt", "--detach")
	nodes := fleet.Await(t, c, 1, patience, "three nodes", fleet.AllReady(3))
	third := fleet.ID(t, c, 3)
	c.MustReeve(t, "node", "label", third, "written=before")
	locked := func(reason string) func(devcluster.Status) bool {
		return func(status devcluster.Status) bool {
			return status.Storage.State == "Locked" && status.Storage.Source("recovery").State == "Waiting" && strings.Contains(status.Storage.Source("cluster").Reason, reason)
		}
	}
	// The first node waits for others, and the command does not wait for it.
	unlock := func(number int, wait string) {
		directory := c.NodeDirectory(number)
		if result := c.StartAlone(t, "node", "unlock", "--wait="+wait, "--dir", directory, "--recovery-key", filepath.Join(directory, "recovery.key")).Wait(t, time.Minute); result.Code != 0 {
			t.Fatal(result)
		} else if wait == "ready" && number == 1 && !strings.Contains(result.Stdout, "The node waits for others: ") {
			t.Errorf("of a node that others are missing for: %s", result)
		}
	}
	// fromCold stops everything, starts the cores, which nobody gives a key, and opens two of the three volumes.
	fromCold := func(wait string) (stop func()) {
		c.MustReeve(t, "dev", "down")
		var cores []*devcluster.Running
		for number := 1; number <= 3; number++ {
			cores = append(cores, fleet.StartCore(t, c, filepath.Join(c.NodeDirectory(number), "reeved.yaml")))
		}
		for number := 1; number <= 3; number++ {
			fleet.AwaitStatus(t, c, number, "the volume waits for a key", locked(""))
		}
		unlock(1, wait)
		unlock(2, wait)
		return func() {
			for _, core := range cores {
				core.Signal(t, 15)
			}
			for _, core := range cores {
				<-core.Done()
			}
		}
	}

	stop := fromCold("ready")
	after := fleet.Await(t, c, 1, patience, "the cluster is whole again", fleet.AllReady(3))
	fleet.AwaitStatus(t, c, 3, "the third volume was opened by the cluster's half of its key", func(status devcluster.Status) bool {
		return status.Storage.Source("cluster").State == "Used" && status.Membership.State == "Home"
	})
	if label := fleet.ByID(after, third).Labels["written"]; label != "before" {
		t.Errorf("the label that was acknowledged before is %q: %v", label, after)
	}
	if len(after) != len(nodes) {
		t.Errorf("there were %d nodes, and are %d", len(nodes), len(after))
	}
	c.MustReeve(t, "policy", "set", "cuk-sources=recovery")
	stop()

	stop = fromCold("none")
	fleet.AwaitStatus(t, c, 3, "the policy forbids the cluster's way", locked("policy"))
	unlock(3, "none")
	fleet.Await(t, c, 1, patience, "the cluster is whole once more", fleet.AllReady(3))
	stop()
}
