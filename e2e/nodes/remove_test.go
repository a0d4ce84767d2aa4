package nodes_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestRolesMoveAndNodesGo takes the roles of the cluster from a node and gives them back, drains a node, deletes a dead one and decommissions a living one.
func TestRolesMoveAndNodesGo(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	fleet.Await(t, c, 1, patience, "three nodes", fleet.AllReady(3))
	first, second, third := fleet.ID(t, c, 1), fleet.ID(t, c, 2), fleet.ID(t, c, 3)

	// What stands in the way is said: the curator needs its member of the store.
	refused := c.Reeve(t, "node", "role", "remove", third, "consensus")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "curator") {
		t.Errorf("consensus is taken away under the curator: %s", refused)
	}
	c.MustReeve(t, "node", "role", "remove", third, "curator")
	c.MustReeve(t, "node", "role", "remove", third, "consensus")
	fleet.Await(t, c, 1, patience, "the member is out and the role gone", func(nodes []fleet.Node) bool {
		node := fleet.ByID(nodes, third)
		return !node.Has("consensus") && node.Role("consensus").State == "" && node.Store == nil && node.Role("hostsfile").State == "Ready"
	})
	// A node without a store of its own is a member like every other.
	fleet.Await(t, c, 1, patience, "the node is well", func(nodes []fleet.Node) bool {
		node := fleet.ByID(nodes, third)
		return node.Healthy && node.Membership != nil && node.Membership.State == "Home"
	})
	c.MustReeve(t, "node", "role", "add", third, "consensus")
	c.MustReeve(t, "node", "role", "add", third, "curator", "--config", fleet.Configuration(t, c, `{"listen":"127.0.0.3:0"}`))
	fleet.Await(t, c, 1, patience, "the roles are back", fleet.AllReady(3))

	c.MustReeve(t, "node", "drain", second)
	fleet.Await(t, c, 1, patience, "what the node runs for others is held back", func(nodes []fleet.Node) bool {
		node := fleet.ByID(nodes, second)
		return node.Drained && node.Role("hostsfile").State == "Blocked" && node.Role("curator").State == "Ready"
	})
	c.MustReeve(t, "node", "drain", second, "--undo")
	fleet.Await(t, c, 1, patience, "its roles run again", fleet.AllReady(3))

	// A dead node.
	refused = c.Reeve(t, "node", "delete", third, "--yes")
	if refused.Code == 0 {
		t.Errorf("a node that lives is deleted: %s", refused)
	}
	fleet.Kill(t, c, 3, third)
	fleet.Await(t, c, 1, patience, "the dead node is seen", func(nodes []fleet.Node) bool { return !fleet.ByID(nodes, third).Healthy })
	c.MustReeve(t, "node", "delete", third, "--yes")
	fleet.Await(t, c, 1, patience, "its member is out", func(nodes []fleet.Node) bool {
		return fleet.ByID(nodes, third).State == "Decommissioned" && fleet.ByID(nodes, third).Store == nil && fleet.ByID(nodes, first).Store != nil && fleet.ByID(nodes, first).Store.Step == ""
	})
	// It comes back, is told, and is none any more.
	started := c.Reeve(t, "dev", "up", "--detach")
	if !strings.Contains(started.Stdout+started.Stderr, "emoved") {
		t.Logf("dev up with a node that was removed: %s", started)
	}
	fleet.AwaitDisowned(t, c, 3)

	// A living one.
	c.MustReeve(t, "node", "decommission", second, "--yes", "--wait")
	fleet.Await(t, c, 1, patience, "the node is decommissioned", func(nodes []fleet.Node) bool {
		return fleet.ByID(nodes, second).State == "Decommissioned" && fleet.ByID(nodes, second).Store == nil && fleet.ByID(nodes, first).Healthy
	})
	fleet.AwaitDisowned(t, c, 2)
	refused = c.Reeve(t, "node", "decommission", first, "--yes")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "last") {
		t.Errorf("the last node: %s", refused)
	}
	c.Down(t)
}
