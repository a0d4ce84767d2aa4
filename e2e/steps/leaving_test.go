package steps_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestStoreCAIsReplacedWhenANodeLeaves decommissions a node of the store while another one is off, which may be connected to it still for all that the others know. `cert list` says that the CA of the
// store's members is to be replaced and what that waits for. The cluster takes writes all the time. The node that was off comes back, and all members replace the CA.
func TestStoreCAIsReplacedWhenANodeLeaves(t *testing.T) {
	c := newCluster(t, runAside(t))
	c.MustReeve(t, "dev", "up", "--nodes", "4", "--detach")
	first, third, fourth := fleet.ID(t, c, 1), fleet.ID(t, c, 3), fleet.ID(t, c, 4)
	c.MustReeve(t, "node", "role", "add", fourth, "consensus")
	fleet.Await(t, c, 1, fleet.Patience, "four members of the store", func(nodes []fleet.Node) bool {
		return len(nodes) == 4 && !slices.ContainsFunc(nodes, func(node fleet.Node) bool {
			return !node.Healthy || node.Store == nil || node.Store.MemberID == "" || node.Store.Learner || node.Store.Step != "" || node.Role("consensus").State != "Ready"
		})
	})
	before := fleet.PeersCA(t, c, 1, 2)
	writes := startWrites(t, c, first)

	fleet.Kill(t, c, 4, fourth)
	fleet.Await(t, c, 1, fleet.Patience, "the node that is off is seen", func(nodes []fleet.Node) bool { return !fleet.ByID(nodes, fourth).Healthy })
	c.MustReeve(t, "node", "decommission", third, "--yes")
	eventually.True(t, fleet.Patience, "it is said what the replacement waits for", func() (bool, string) {
		result := c.Reeve(t, "cert", "list")
		return strings.Contains(result.Stdout, "it starts as soon as the removal of the member of "+third+" is done"), result.String()
	})
	if now := fleet.PeersCA(t, c, 1, 2); !slices.Equal(now, before) {
		t.Error("the CA is replaced although a member that was not told of the removal is off")
	}
	writes.through(t)

	c.Reeve(t, "dev", "up", "--detach") // it may say that the node that is leaving is not well
	eventually.True(t, fleet.Patience, "the CA is replaced", func() (bool, string) {
		result := c.Reeve(t, "cert", "list")
		now := slices.Compact(fleet.PeersCA(t, c, 1, 2, 4))
		return result.Code == 0 && !strings.Contains(result.Stdout, "store's members") && len(now) == 1 && now[0] != before[0] && strings.Count(now[0], "BEGIN") == 1, result.String()
	})
	writes.through(t)
	writes.end()
	c.Down(t)
}
