//go:build soak

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRenumbered has three machines without any IPv4, which are all given another prefix at the same time, as routers do it: the former addresses are deprecated, and then gone. The cluster goes on. That a
// member listens on all addresses there is a test of its package.
func TestRenumbered(t *testing.T) {
	t.Parallel()
	devcluster.RequireNamespaces(t)
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("needs ip, of the package iproute2")
	}
	var machines []initialized
	for range 3 {
		machines = append(machines, newInitialized(t, devcluster.Options{OwnNetwork: true}))
	}
	network := func(m initialized, commands ...string) {
		t.Helper()
		if result := m.Run(t, "/bin/sh", "-euc", strings.ReplaceAll(strings.Join(commands, "\n"), "ip ", ip+" ")); result.Code != 0 {
			t.Fatal(result)
		}
	}
	address := func(prefix string, number int) string { return prefix + "::" + strconv.Itoa(number+1) }

	connect := func(number int, eth0 string) {
		t.Helper()
		network(machines[number], "ip address delete 127.0.0.1/8 dev lo", "ip link add eth0 type "+eth0, "ip link set eth0 up",
			"ip address add "+address("fd00:77", number)+"/64 dev eth0 nodad", "ip route add default via fd00:77::fe dev eth0")
	}

	first := machines[0]
	connect(0, "bridge")
	if result := first.init(t); result.Code != 0 {
		t.Fatal(result)
	}
	reeved := []*devcluster.Running{first.startReeved(t)}
	id := first.home(t, reeved[0]).Node.ID
	configuration := filepath.Join(first.Home, "curator.json")
	if err := os.WriteFile(configuration, []byte(`{"listen":":7443"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for number, m := range machines {
		if number == 0 {
			continue
		}
		// The wires of the others end at the bridge of the first one.
		wire := "wire" + strconv.Itoa(number)
		connect(number, "veth peer name "+wire+" netns "+strconv.Itoa(reeved[0].PID))
		network(first, "ip link set "+wire+" master eth0", "ip link set "+wire+" up")
		ticket := m.Path("ticket")
		first.mustReeve(t, "ticket", "create", "--auto-approve", "--output-file", ticket)
		if result := m.StartAlone(t, "init", "--join", ticket, "--file", m.file, "--state", m.state, "--run", m.run).Wait(t, patience); result.Code != 0 {
			t.Fatal(result)
		}
		started := m.startReeved(t)
		reeved = append(reeved, started)
		joined := m.up(t, started).Node.ID
		first.mustReeve(t, "node", "role", "add", joined, "consensus")
		first.mustReeve(t, "node", "role", "add", joined, "curator", "--config", configuration)
	}

	made := make([]uint64, len(machines))
	for number, m := range machines {
		made[number] = m.lastEvent(t)
		network(m, "ip address add "+address("fd00:78", number)+"/64 dev eth0 nodad", "ip address change "+address("fd00:77", number)+"/64 dev eth0 preferred_lft 0 valid_lft forever",
			"ip route replace default via fd00:78::fe dev eth0")
	}
	all := func(what string) {
		t.Helper()
		for _, m := range machines {
			eventually.True(t, patience, what, func() (bool, string) {
				document := m.mustReeve(t, "status", "-o", "json")
				status, err := devcluster.ParseStatus(document)
				if err != nil {
					t.Fatal(err)
				}
				known := 0
				for number := range machines {
					for _, curator := range status.Cluster.Curators {
						if curator == net.JoinHostPort(address("fd00:78", number), "7443") {
							known++
						}
					}
				}
				return status.Up("consensus", "curator") && known == len(machines) && len(status.Cluster.Curators) == known, document
			})
		}
	}
	all("every node Home, with the curators' new addresses")
	for number, m := range machines {
		network(m, "ip address delete "+address("fd00:77", number)+"/64 dev eth0")
	}
	eventually.True(t, patience, "a write without the former addresses", func() (bool, string) {
		result := first.reeve(t, "node", "label", id, "written=renumbered")
		return result.Code == 0, result.String()
	})
	all("every node Home without the former addresses")
	for number, m := range machines {
		m.wasHomeSince(t, made[number])
		reeved[number].Signal(t, syscall.SIGTERM)
	}
	for _, running := range reeved {
		if result := running.Wait(t, patience); result.Code != 0 {
			t.Error(result)
		}
	}
}
