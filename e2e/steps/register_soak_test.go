//go:build soak

package steps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestStepsOfNodesThatRegisterAndGo kills the core of a machine at every step that it keeps on its way into the cluster, and of others on their way out. Each goes on where
// it was: one record, one registration; and what is removed stays removed.
func TestStepsOfNodesThatRegisterAndGo(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	failpoints, err := shared.Programs.Failpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.MustReeve(t, "dev", "up", "--detach")
	in := func(nodes []fleet.Node, count int) bool {
		up := 0
		for _, node := range nodes {
			if node.State == "Up" && node.Healthy && node.Membership != nil && node.Membership.State == "Home" {
				up++
			}
		}
		return up == count && len(nodes) == count
	}

	// One machine is killed at every step of its way in.
	parameters := fleet.Machine(t, c, 2)
	for _, step := range []string{"make-configuration", "mark-volume", "raise-incarnation", "enter-registered", "enter-committing", "keep-assignment", "enter-member"} {
		fleet.AwaitKilledAt(t, c, failpoints, parameters, step)
	}
	core := fleet.StartCore(t, c, parameters)
	fleet.Await(t, c, 1, fleet.Patience, "the machine is a node", func(nodes []fleet.Node) bool { return in(nodes, 2) })
	second := fleet.ID(t, c, 2)

	// It is given a member of the store, and loses it again.
	stop := func(core *devcluster.Running) {
		t.Helper()
		core.Signal(t, 15)
		if result := core.Wait(t, fleet.Patience); result.Code != 0 {
			t.Fatal(result)
		}
	}
	stop(core)
	c.MustReeve(t, "node", "role", "add", second, "consensus", "--wait=false")
	fleet.AwaitKilledAt(t, c, failpoints, parameters, "enter-store")
	core = fleet.StartCore(t, c, parameters)
	fleet.Await(t, c, 1, fleet.Patience, "the node has a member that votes", func(nodes []fleet.Node) bool {
		store := fleet.ByID(nodes, second).Store
		return store != nil && store.MemberID != "" && !store.Learner && store.Step == ""
	})
	c.MustReeve(t, "node", "role", "remove", second, "consensus", "--wait=false")
	fleet.Await(t, c, 1, fleet.Patience, "the member is out", func(nodes []fleet.Node) bool {
		return fleet.ByID(nodes, second).Store == nil && !fleet.ByID(nodes, second).Has("consensus")
	})
	stop(core)

	// It is removed while it is off, and killed at every step of forgetting.
	c.MustReeve(t, "node", "delete", second, "--force", "--yes")
	for _, step := range []string{"disown", "erase-keys", "erase-data"} {
		fleet.AwaitKilledAt(t, c, failpoints, parameters, step)
	}
	core = fleet.StartCore(t, c, parameters)
	fleet.AwaitDisowned(t, c, 2)
	for _, name := range []string{"identity", "roles"} {
		// It says that it was removed before it has erased everything.
		eventually.True(t, fleet.Patience, "the node that was removed has no "+name, func() (bool, string) {
			entries, _ := os.ReadDir(filepath.Join(c.NodeDirectory(2), "data", name))
			return len(entries) == 0, fmt.Sprint(entries)
		})
	}
	stop(core)
}
