package nodes_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRolesMoveAndNodesGo takes the roles of the cluster from a node and gives them back, drains a node, deletes a dead one and decommissions a living one.
func TestRolesMoveAndNodesGo(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	await(t, c, 1, patience, "three nodes", allReady(3))
	first, second, third := idOf(t, c, 1), idOf(t, c, 2), idOf(t, c, 3)

	// What stands in the way is said: the curator needs its member of the store.
	refused := c.Reeve(t, "node", "role", "remove", third, "consensus")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "curator") {
		t.Errorf("consensus is taken away under the curator: %s", refused)
	}
	c.MustReeve(t, "node", "role", "remove", third, "curator")
	c.MustReeve(t, "node", "role", "remove", third, "consensus")
	await(t, c, 1, patience, "the member is out and the role gone", func(nodes []node) bool {
		node := by(nodes, third)
		return !node.has("consensus") && node.role("consensus").State == "" && node.Store == nil && node.role("hostsfile").State == "Ready"
	})
	// A node without a store of its own is a member like every other.
	await(t, c, 1, patience, "the node is well", func(nodes []node) bool {
		node := by(nodes, third)
		return node.Healthy && node.Membership != nil && node.Membership.State == "Home"
	})
	c.MustReeve(t, "node", "role", "add", third, "consensus")
	c.MustReeve(t, "node", "role", "add", third, "curator", "--config", configuration(t, c, `{"listen":"127.0.0.3:0"}`))
	await(t, c, 1, patience, "the roles are back", allReady(3))

	c.MustReeve(t, "node", "drain", second)
	await(t, c, 1, patience, "what the node runs for others is held back", func(nodes []node) bool {
		node := by(nodes, second)
		return node.Drained && node.role("hostsfile").State == "Blocked" && node.role("curator").State == "Ready"
	})
	c.MustReeve(t, "node", "drain", second, "--undo")
	await(t, c, 1, patience, "its roles run again", allReady(3))

	// A dead node.
	refused = c.Reeve(t, "node", "delete", third, "--yes")
	if refused.Code == 0 {
		t.Errorf("a node that lives is deleted: %s", refused)
	}
	killNode(t, c, 3, third)
	await(t, c, 1, patience, "the dead node is seen", func(nodes []node) bool { return !by(nodes, third).Healthy })
	c.MustReeve(t, "node", "delete", third, "--yes")
	await(t, c, 1, patience, "its member is out", func(nodes []node) bool {
		return by(nodes, third).State == "Decommissioned" && by(nodes, third).Store == nil && by(nodes, first).Store != nil && by(nodes, first).Store.Step == ""
	})
	// It comes back, is told, and is none any more.
	started := c.Reeve(t, "dev", "up", "--detach")
	if !strings.Contains(started.Stdout+started.Stderr, "emoved") {
		t.Logf("dev up with a node that was removed: %s", started)
	}
	disowned(t, c, 3)

	// A living one.
	c.MustReeve(t, "node", "decommission", second, "--yes", "--wait")
	await(t, c, 1, patience, "the node is decommissioned", func(nodes []node) bool {
		return by(nodes, second).State == "Decommissioned" && by(nodes, second).Store == nil && by(nodes, first).Healthy
	})
	disowned(t, c, 2)
	refused = c.Reeve(t, "node", "decommission", first, "--yes")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "last") {
		t.Errorf("the last node: %s", refused)
	}
	c.Down(t)
}

// configuration is a file with the configuration of a role, which the cluster's user may read.
func configuration(t *testing.T, c *devcluster.Cluster, document string) string {
	t.Helper()
	file, err := os.CreateTemp(c.Home, "configuration")
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(document)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// disowned waits until a node knows that it was removed, runs no role and has no secret left.
func disowned(t *testing.T, c *devcluster.Cluster, number int) {
	t.Helper()
	eventually.True(t, patience, "the node knows that it was removed", func() (bool, string) {
		result := c.StartAlone(t, "status", "-o", "json", "--dir", directoryOf(c, number)).Wait(t, patience)
		status, err := devcluster.ParseStatus(result.Stdout)
		return err == nil && status.Membership.State == "Disowning" && len(status.PIDs()) == 0, result.String()
	})
}
