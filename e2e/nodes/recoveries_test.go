package nodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestTwoRecoveries has two survivors that could not see each other become two stores. The node of the one that was begun first comes to the other when it is started again and sees it.
func TestTwoRecoveries(t *testing.T) {
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "2", "--detach")
	former := fleet.Await(t, c, 1, patience, "two nodes with their roles", fleet.AllReady(2))
	ids := map[int]string{1: fleet.ID(t, c, 1), 2: fleet.ID(t, c, 2)}
	status, _ := fleet.Status(t, c, 1)
	at := func(number int, arguments ...string) devcluster.Result {
		return c.StartAlone(t, append(arguments, "--dir", c.NodeDirectory(number))...).Wait(t, patience)
	}
	core := func(number int) { fleet.StartCore(t, c, filepath.Join(c.NodeDirectory(number), "reeved.yaml")) }
	recoverAt := func(number int) {
		t.Helper()
		eventually.True(t, patience, "the survivor is the only member", func() (bool, string) {
			result := at(number, "store", "recover-quorum", "--cluster-id", status.Cluster.ID)
			return result.Code == 0, result.String()
		})
		eventually.True(t, patience, "the node follows the store that has begun", func() (bool, string) {
			result := at(number, "events")
			return strings.Contains(result.Stdout, "StoreFollowed"), result.String()
		})
	}
	fleet.Kill(t, c, 2, ids[2])
	recoverAt(1)
	fleet.Kill(t, c, 1, ids[1])
	core(2)
	recoverAt(2)
	eventually.True(t, patience, "the later store takes writes", func() (bool, string) {
		result := at(2, "node", "label", ids[2], "later=yes")
		return result.Code == 0, result.String()
	})
	core(1)
	nodes := fleet.Await(t, c, 1, patience, "both are nodes of the later store", func(nodes []fleet.Node) bool {
		return fleet.AllRejoined(former)(nodes) && fleet.ByID(nodes, ids[2]).Labels["later"] == "yes"
	})
	if fleet.ByID(nodes, ids[1]).Store.MemberID == fleet.ByID(nodes, ids[2]).Store.MemberID {
		t.Error(nodes)
	}
	if _, err := os.Stat(filepath.Join(c.NodeDirectory(1), "data", "roles", "consensus", "former", "etcd")); err != nil {
		t.Errorf("what the member of the former store had was not put aside: %v", err)
	}
	c.Down(t)
}
