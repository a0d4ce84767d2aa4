package nodes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// TestThreeNodes makes a cluster of three nodes in one command, takes its first node away under it, and brings everything back, with a fourth node.
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
	nodes := fleet.Await(t, c, 1, patience, "three nodes with their roles", fleet.AllReady(3))
	for number := 1; number <= 3; number++ {
		hosts := filepath.Join(c.NodeDirectory(number), "hosts")
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
	first, second := fleet.ID(t, c, 1), fleet.ID(t, c, 2)
	fleet.Kill(t, c, 1, first)
	fleet.Await(t, c, 2, patience, "the dead node is seen", func(nodes []fleet.Node) bool {
		return !fleet.ByID(nodes, first).Healthy && fleet.ByID(nodes, second).Healthy
	})
	result := c.StartAlone(t, "node", "label", second, "alive=yes", "--dir", c.NodeDirectory(2)).Wait(t, patience)
	if result.Code != 0 {
		t.Fatal(result)
	}
	fleet.Await(t, c, 2, patience, "the list of nodes says what the dead one lacks", func(nodes []fleet.Node) bool {
		problem := fleet.ByID(nodes, first).Problem
		return strings.Contains(problem, "it sends no heartbeats") && strings.Contains(problem, "does not answer the store's leader")
	})
	eventually.True(t, patience, "the store's status names the dead voter", func() (bool, string) {
		result := c.StartAlone(t, "store", "status", "--dir", c.NodeDirectory(2)).Wait(t, patience)
		return result.Code == 0 && strings.Contains(lineOf(result.Stdout, "Problem"), first) && strings.Contains(lineOf(result.Stdout, "Members"), first+" (does not answer)"), result.String()
	})

	// It comes back, and with it a fourth node, which has neither a member of the store nor a curator.
	c.MustReeve(t, "dev", "up", "--nodes", "4", "--detach")
	nodes = fleet.Await(t, c, 1, patience, "all nodes are back, and the fourth is there", threeAndFourth)
	if fleet.ByID(nodes, second).Labels["alive"] != "yes" {
		t.Errorf("what was written without the first node is lost: %v", nodes)
	}

	// All of them at once. The fourth finds the curators where they were.
	c.Down(t)
	c.MustReeve(t, "dev", "up", "--detach")
	fleet.Await(t, c, 3, patience, "all nodes are back after all were off", threeAndFourth)
	c.Down(t)
}

// threeAndFourth says whether three nodes are ready with all their roles, and one that has only hostsfile.
func threeAndFourth(nodes []fleet.Node) bool {
	fourth := slices.IndexFunc(nodes, func(node fleet.Node) bool { return !node.Has("consensus") })
	return fourth >= 0 && !nodes[fourth].Has("curator") && nodes[fourth].Healthy && nodes[fourth].Role("hostsfile").State == "Ready" && fleet.AllReady(3)(slices.Delete(slices.Clone(nodes), fourth, fourth+1))
}

// lineOf is the line of a table that begins with a word.
func lineOf(table, word string) string {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, word) {
			return line
		}
	}
	return ""
}
