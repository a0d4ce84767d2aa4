package nodes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestRotateCA puts a new CA in the place of the old one while the cluster serves, step by step as an operator does. No call fails, and no node is lost.
func TestRotateCA(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	fleet.Await(t, c, 1, patience, "three nodes", fleet.AllReady(3))

	before := fleet.PeersCA(t, c, 1, 2, 3)
	if result := c.Reeve(t, "cert", "rotate", "activate"); result.Code == 0 || !strings.Contains(result.Stderr, "prepare") {
		t.Errorf("a step is skipped: %s", result)
	}
	for _, step := range []string{"prepare", "activate", "retire"} {
		eventually.True(t, patience, step, func() (bool, string) {
			result := c.Reeve(t, "cert", "rotate", step)
			return result.Code == 0, result.String()
		})
		fleet.Await(t, c, 2, patience, "the nodes are well after "+step, fleet.AllReady(3))
	}
	if result := c.MustReeve(t, "cert", "list"); strings.Count(result.Stdout, "CN=Reeve cluster CA") != 1 {
		t.Errorf("there is not one CA: %s", result)
	}
	eventually.True(t, patience, "the CA of the store's members is another one, too", func() (bool, string) {
		result := c.Reeve(t, "cert", "list")
		now := fleet.PeersCA(t, c, 1, 2, 3)
		done := result.Code == 0 && !strings.Contains(result.Stdout, "store's members") && !slices.Contains(now, before[0]) && len(slices.Compact(now)) == 1
		return done && strings.Count(now[0], "BEGIN") == 1, result.String()
	})
	c.Down(t)
	c.MustReeve(t, "dev", "up", "--detach")
	fleet.Await(t, c, 3, patience, "the nodes know each other by the new CA after a restart", fleet.AllReady(3))
}
