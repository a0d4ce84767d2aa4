package nodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// at returns the status of the node with a number, as its own socket tells it.
func at(t *testing.T, c *devcluster.Cluster, number int) (devcluster.Status, string) {
	t.Helper()
	result := c.StartAlone(t, "status", "-o", "json", "--dir", directoryOf(c, number)).Wait(t, patience)
	status, err := devcluster.ParseStatus(result.Stdout)
	if err != nil || result.Code != 0 {
		return devcluster.Status{}, result.String()
	}
	return status, result.String()
}

// awaitStatus waits until the node with a number says that it is as it should be.
func awaitStatus(t *testing.T, c *devcluster.Cluster, number int, what string, as func(devcluster.Status) bool) {
	t.Helper()
	eventually.True(t, patience, what, func() (bool, string) {
		status, seen := at(t, c, number)
		return as(status), seen
	})
}

// TestTheClusterOpensVolumes restarts a node with an encrypted volume: the cluster, which is up, gives it its half of the key, as long as its policy allows it.
func TestTheClusterOpensVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a volume is mounted")
	}
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "2", "--volume", "fscrypt", "--detach")
	await(t, c, 1, patience, "two nodes", allReady(2))
	// The store has to be there without the node.
	second := idOf(t, c, 2)
	c.MustReeve(t, "node", "role", "remove", second, "curator")
	c.MustReeve(t, "node", "role", "remove", second, "consensus")
	c.MustReeve(t, "dev", "down", "--node", "2")

	parameters := filepath.Join(directoryOf(c, 2), "reeved.yaml")
	core := startCore(t, c, parameters)
	awaitStatus(t, c, 2, "the volume is open by the cluster's key", func(status devcluster.Status) bool {
		return status.Storage.Source("cluster").State == "Used" && status.Up("hostsfile")
	})
	c.MustReeve(t, "policy", "set", "cuk-sources=recovery")
	await(t, c, 1, patience, "the node is well", func(nodes []node) bool { return by(nodes, second).Healthy })
	core.Signal(t, 15)
	<-core.Done()

	core = startCore(t, c, parameters)
	awaitStatus(t, c, 2, "the policy forbids it", func(status devcluster.Status) bool {
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
	await(t, c, 1, patience, "two nodes", allReady(2))
	second := idOf(t, c, 2)
	c.MustReeve(t, "node", "role", "remove", second, "curator")
	c.MustReeve(t, "node", "role", "remove", second, "consensus")
	directory := directoryOf(c, 2)
	home := func(nodes []node) bool {
		node := by(nodes, second)
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
		await(t, c, 1, patience, "the node is there", home)
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
	core := startCore(t, c, filepath.Join(directory, "reeved.yaml"))
	awaitStatus(t, c, 2, "the copy knows that it is one", func(status devcluster.Status) bool {
		return status.Membership.State == "Split" && strings.Contains(status.Membership.Reason, "reeve node accept "+second)
	})
	await(t, c, 1, patience, "the cluster says so", func(nodes []node) bool { return by(nodes, second).Problem != "" })

	c.MustReeve(t, "node", "accept", second)
	await(t, c, 1, patience, "the copy is the node", home)
	core.Signal(t, 15)
	<-core.Done()
}
