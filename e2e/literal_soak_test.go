//go:build soak

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestBootsWithAnotherAddress sets up a machine whose listeners have its literal address, and starts it with another one. The node starts all the same, says which address it lacks, and takes
// commands; when the address is back it listens there.
func TestBootsWithAnotherAddress(t *testing.T) {
	t.Parallel()
	devcluster.RequireNamespaces(t)
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("needs ip, of the package iproute2")
	}
	m := newInitialized(t, devcluster.Options{OwnNetwork: true})
	network := func(commands ...string) {
		t.Helper()
		if result := m.Run(t, "/bin/sh", "-euc", strings.ReplaceAll(strings.Join(commands, "\n"), "ip ", ip+" ")); result.Code != 0 {
			t.Fatal(result)
		}
	}
	network("ip link add eth0 type veth peer name wire", "ip link set wire up", "ip link set eth0 up", "ip address add 10.77.0.1/24 dev eth0", "ip route add default via 10.77.0.254")
	if result := m.init(t, "--address", "10.77.0.1"); result.Code != 0 {
		t.Fatal(result)
	}
	reeved := m.startReeved(t)
	id := m.home(t, reeved).Node.ID
	m.stopReeved(t, reeved)

	network("ip address delete 10.77.0.1/24 dev eth0", "ip address add 10.78.0.1/24 dev eth0", "ip route replace default via 10.78.0.254")
	reeved = m.startReeved(t)
	lacks := func(want bool) func() (bool, string) {
		return func() (bool, string) {
			said := m.reeve(t, "status").Stdout
			api, curator := "cannot listen on 10.77.0.1:7444", "10.77.0.1:7443, on which the cluster API is to be served, is none of this machine"
			return strings.Contains(said, "Home: ") && strings.Contains(said, api) == want && strings.Contains(said, curator) == want, said
		}
	}
	eventually.True(t, patience, "the node is Home, and names the address that it lacks", lacks(true))
	m.mustReeve(t, "node", "label", id, "written=without")
	network("ip address add 10.77.0.1/24 dev eth0")
	eventually.True(t, patience, "the node listens again", lacks(false))
	m.stopReeved(t, reeved)
}
