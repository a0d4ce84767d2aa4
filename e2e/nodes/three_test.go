package nodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// allReady says whether that many nodes are Up and healthy, each with every default role Ready and a voter of the store.
func allReady(count int) func([]node) bool {
	return func(nodes []node) bool {
		if len(nodes) != count {
			return false
		}
		for _, node := range nodes {
			if node.State != "Up" || !node.Healthy || node.Store == nil || node.Store.MemberID == "" || node.Store.Learner || node.Store.Step != "" {
				return false
			}
			for _, role := range devcluster.DefaultRoles {
				if node.role(role).State != "Ready" {
					return false
				}
			}
		}
		return true
	}
}

// TestThreeNodes makes a cluster of three nodes in one command, takes its first node away under it, and brings everything back.
func TestThreeNodes(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("needs root")
		}
		threeNodes(t, shared.Cluster(t))
	})
	// The other tests of this package run as an ordinary user.
	if soak.Enabled || os.Geteuid() != 0 {
		t.Run("ordinary user", func(t *testing.T) { threeNodes(t, shared.OrdinaryCluster(t)) })
	}
}

func threeNodes(t *testing.T, c *devcluster.Cluster) {
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	nodes := await(t, c, 1, patience, "three nodes with their roles", allReady(3))
	for number := 1; number <= 3; number++ {
		hosts := filepath.Join(directoryOf(c, number), "hosts")
		eventually.True(t, patience, "the hosts file of every node holds all of them", func() (bool, string) {
			content, err := os.ReadFile(hosts)
			for _, node := range nodes {
				if err != nil || !strings.Contains(string(content), node.ID) {
					return false, string(content)
				}
			}
			return true, ""
		})
	}

	// The cluster goes on without its first node, from which all others came.
	first, second := idOf(t, c, 1), idOf(t, c, 2)
	killNode(t, c, 1, first)
	await(t, c, 2, patience, "the dead node is seen", func(nodes []node) bool { return !by(nodes, first).Healthy && by(nodes, second).Healthy })
	result := c.StartAlone(t, "node", "label", second, "alive=yes", "--dir", directoryOf(c, 2)).Wait(t, patience)
	if result.Code != 0 {
		t.Fatal(result)
	}

	c.MustReeve(t, "dev", "up", "--detach")
	nodes = await(t, c, 1, patience, "all nodes are back", allReady(3))
	if by(nodes, second).Labels["alive"] != "yes" {
		t.Errorf("what was written without the first node is lost: %v", nodes)
	}

	// All of them at once.
	c.Down(t)
	c.MustReeve(t, "dev", "up", "--detach")
	await(t, c, 3, patience, "all nodes are back after all were off", allReady(3))
	c.Down(t)
}
