//go:build soak

package nodes_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestTheOnlyCuratorMoves gives the only curator another port, of which the other node hears by no curator: the node on which it runs says where it is.
func TestTheOnlyCuratorMoves(t *testing.T) {
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "2", "--detach")
	fleet.Await(t, c, 1, patience, "two nodes with their roles", fleet.AllReady(2))
	c.MustReeve(t, "node", "role", "remove", fleet.ID(t, c, 2), "curator")
	fleet.AwaitStatus(t, c, 2, "one curator", func(status devcluster.Status) bool {
		return status.Membership.State == "Home" && len(status.Cluster.Curators) == 1
	})
	before, _ := fleet.Status(t, c, 2)
	host, _, err := net.SplitHostPort(before.Cluster.Curators[0])
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	moved := free.Addr().String()
	configuration := filepath.Join(c.Home, "curator.json")
	if err := os.WriteFile(configuration, fmt.Appendf(nil, `{"listen": %q}`, moved), 0o644); err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	c.MustReeve(t, "node", "role", "add", fleet.ID(t, c, 1), "curator", "--config", configuration, "--wait=none")
	fleet.AwaitStatus(t, c, 2, "the curator at its other port", func(status devcluster.Status) bool {
		return status.Membership.State == "Home" && slices.Equal(status.Cluster.Curators, []string{moved})
	})
	c.Down(t)
}
