package nodes_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRotateCA puts a new CA in the place of the old one while the cluster serves, step by step as an operator does. No call fails, and no node is lost.
func TestRotateCA(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	await(t, c, 1, patience, "three nodes", allReady(3))

	if result := c.Reeve(t, "cert", "rotate", "activate"); result.Code == 0 || !strings.Contains(result.Stderr, "prepare") {
		t.Errorf("a step is skipped: %s", result)
	}
	for _, step := range []string{"prepare", "activate", "retire"} {
		eventually.True(t, patience, step, func() (bool, string) {
			result := c.Reeve(t, "cert", "rotate", step)
			return result.Code == 0, result.String()
		})
		await(t, c, 2, patience, "the nodes are well after "+step, allReady(3))
	}
	if result := c.MustReeve(t, "cert", "list"); strings.Count(result.Stdout, "CN=Reeve cluster CA") != 1 {
		t.Errorf("there is not one CA: %s", result)
	}
	c.Down(t)
	c.MustReeve(t, "dev", "up", "--detach")
	await(t, c, 3, patience, "the nodes know each other by the new CA after a restart", allReady(3))
}
