package steps_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// stepsOfRecovery are those of the recovery of a lost majority.
var stepsOfRecovery = []string{"promise-recovery", "begin-recovery", "commit-log", "begin-generation", "remake-member", "adopt-remade", "drop-credentials", "mark-forced", "mark-recovered"}

// TestStepsOfALostMajority kills the survivor's role before and after everything that it keeps while it is made the only member of the store. The same command goes on each time.
func TestStepsOfALostMajority(t *testing.T) {
	c := newCluster(t)
	allowCrashes(t, c)
	c.MustReeve(t, "dev", "up", "--nodes", "2", "--detach")
	former := fleet.Await(t, c, 1, fleet.Patience, "two nodes with their roles", fleet.AllReady(2))
	first, second := fleet.ID(t, c, 1), fleet.ID(t, c, 2)
	c.MustReeve(t, "node", "label", first, "written=yes")
	fleet.Kill(t, c, 2, second)

	survivor := startPoints(t, c, "consensus")
	survivor.add([]int{1}, around(stepsOfRecovery...)...)
	status, _ := fleet.Status(t, c, 1)
	eventually.True(t, manyKills, "the survivor is the only member", func() (bool, string) {
		result := c.Reeve(t, "store", "recover-quorum", "--cluster-id", status.Cluster.ID)
		return result.Code == 0 || strings.Contains(result.Stderr, "the store has a quorum"), result.String()
	})
	eventually.True(t, manyKills, "the survivor's role has ended at each step", func() (bool, string) {
		left := survivor.missing()
		return len(left) == 0, strings.Join(left, " ")
	})
	survivor.end()
	nodes := fleet.Await(t, c, 1, fleet.Patience, "the cluster takes writes", func(nodes []fleet.Node) bool {
		return c.Reeve(t, "node", "label", first, "recovered=yes").Code == 0 && fleet.ByID(nodes, first).Labels["recovered"] == "yes"
	})
	if fleet.ByID(nodes, first).Labels["written"] != "yes" {
		t.Errorf("a write that was acknowledged is lost: %v", nodes)
	}
	result := c.MustReeve(t, "store", "status", "-o", "json")
	if !strings.Contains(result.Stdout, `"generation_id": "`) {
		t.Errorf("the store was not begun again: %s", result)
	}
	c.MustReeve(t, "dev", "up", "--detach")
	fleet.Await(t, c, 1, fleet.Patience, "the other node is back", fleet.AllRejoined(former))
	c.Down(t)
}
