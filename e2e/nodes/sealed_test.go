package nodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestTheClusterOpensVolumes restarts a node with an encrypted volume: the cluster, which is up, gives it its half of the key, as long as its policy allows it.
func TestTheClusterOpensVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a volume is mounted")
	}
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "2", "--volume", "fscrypt", "--detach")
	fleet.Await(t, c, 1, patience, "two nodes", fleet.AllReady(2))
	// The store has to be there without the node.
	second := fleet.ID(t, c, 2)
	c.MustReeve(t, "node", "role", "remove", second, "curator")
	c.MustReeve(t, "node", "role", "remove", second, "consensus")
	c.MustReeve(t, "dev", "down", "--node", "2")

	parameters := filepath.Join(c.NodeDirectory(2), "reeved.yaml")
	core := fleet.StartCore(t, c, parameters)
	fleet.AwaitStatus(t, c, 2, "the volume is open by the cluster's key", func(status devcluster.Status) bool {
		return status.Storage.Source("cluster").State == "Used" && status.Up("hostsfile")
	})
	c.MustReeve(t, "policy", "set", "cuk-sources=recovery")
	fleet.Await(t, c, 1, patience, "the node is well", func(nodes []fleet.Node) bool { return fleet.ByID(nodes, second).Healthy })
	core.Signal(t, 15)
	<-core.Done()

	core = fleet.StartCore(t, c, parameters)
	fleet.AwaitStatus(t, c, 2, "the policy forbids it", func(status devcluster.Status) bool {
		source := status.Storage.Source("cluster")
		return status.Storage.State == "Locked" && source.State == "Off" && strings.Contains(source.Reason, "policy")
	})
	core.Signal(t, 15)
	<-core.Done()
}

// TestARestoredDisk brings back an older copy of a node's files. It is not taken for the node, both sides say why, and it is the node again when an operator has said so.
func TestARestoredDisk(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "2", "--detach")
	fleet.Await(t, c, 1, patience, "two nodes", fleet.AllReady(2))
	second := fleet.ID(t, c, 2)
	c.MustReeve(t, "node", "role", "remove", second, "curator")
	c.MustReeve(t, "node", "role", "remove", second, "consensus")
	directory := c.NodeDirectory(2)
	home := func(nodes []fleet.Node) bool {
		node := fleet.ByID(nodes, second)
		return node.Healthy && node.Membership != nil && node.Membership.State == "Home" && node.Problem == ""
	}

	c.MustReeve(t, "dev", "down", "--node", "2")
	kept := filepath.Join(c.Home, "copy")
	for _, name := range []string{"system", "data"} {
		if result := c.Run(t, "/bin/cp", "-a", filepath.Join(directory, name), kept+"-"+name); result.Code != 0 {
			t.Fatal(result)
		}
	}
	for range 2 {
		c.MustReeve(t, "dev", "up", "--detach")
		fleet.Await(t, c, 1, patience, "the node is there", home)
		c.MustReeve(t, "dev", "down", "--node", "2")
	}
	for _, name := range []string{"system", "data"} {
		if result := c.Run(t, "/bin/rm", "-rf", filepath.Join(directory, name)); result.Code != 0 {
			t.Fatal(result)
		}
		if err := os.Rename(kept+"-"+name, filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	core := fleet.StartCore(t, c, filepath.Join(directory, "reeved.yaml"))
	fleet.AwaitStatus(t, c, 2, "the copy knows that it is one", func(status devcluster.Status) bool {
		return status.Membership.State == "Split" && strings.Contains(status.Membership.Reason, "reeve node accept "+second)
	})
	fleet.Await(t, c, 1, patience, "the cluster says so", func(nodes []fleet.Node) bool {
		return strings.Contains(fleet.ByID(nodes, second).Problem, "was refused")
	})

	c.MustReeve(t, "node", "accept", second)
	fleet.Await(t, c, 1, patience, "the copy is the node", home)
	core.Signal(t, 15)
	<-core.Done()
}
