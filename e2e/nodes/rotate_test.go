package nodes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRotateCA puts a new CA in the place of the old one while the cluster serves, step by step as an operator does. No call fails, and no node is lost.
func TestRotateCA(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	await(t, c, 1, patience, "three nodes", allReady(3))

	before := peersCA(t, c, 1, 2, 3)
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
	eventually.True(t, patience, "the CA of the store's members is another one, too", func() (bool, string) {
		result := c.Reeve(t, "cert", "list")
		now := peersCA(t, c, 1, 2, 3)
		done := result.Code == 0 && !strings.Contains(result.Stdout, "store's members") && !slices.Contains(now, before[0]) && len(slices.Compact(now)) == 1
		return done && strings.Count(now[0], "BEGIN") == 1, result.String()
	})
	c.Down(t)
	c.MustReeve(t, "dev", "up", "--detach")
	await(t, c, 3, patience, "the nodes know each other by the new CA after a restart", allReady(3))
}

// peersCA is what the members of the store on some nodes know each other by.
func peersCA(t *testing.T, c *devcluster.Cluster, numbers ...int) (all []string) {
	t.Helper()
	for _, number := range numbers {
		content, err := os.ReadFile(filepath.Join(directoryOf(c, number), "data", "roles", "consensus", "peer", "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(content))
	}
	return all
}
