package e2e

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// TestOnlyAddress sets up a machine that has one address, takes that away while its node runs, and gives it another one: of IPv4, and of IPv6 where there is no IPv4 at all, not even on the loopback
// interface. The only curator is the machine's own, and is reached throughout.
func TestOnlyAddress(t *testing.T) {
	t.Parallel()
	devcluster.RequireNamespaces(t)
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("needs ip, of the package iproute2")
	}
	cases := map[string]struct {
		alone         string // a command for the machine; empty: none
		first, second string
		bits          string
		gateways      [2]string
	}{
		"IPv4":       {"", "10.77.0.1", "10.78.0.1", "/24", [2]string{"10.77.0.254", "10.78.0.254"}},
		"IPv6 alone": {"ip address delete 127.0.0.1/8 dev lo", "fd00:77::1", "fd00:78::1", "/64", [2]string{"fd00:77::fe", "fd00:78::fe"}},
	}
	if !soak.Enabled {
		delete(cases, "IPv4") // the other one shows all of it
	}
	for name, test := range inOrder(cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newInitialized(t, devcluster.Options{OwnNetwork: true})
			network := func(commands ...string) {
				t.Helper()
				script := strings.ReplaceAll(strings.Join(commands, "\n"), "ip ", ip+" ")
				if result := m.Run(t, "/bin/sh", "-euc", script); result.Code != 0 {
					t.Fatal(result)
				}
			}
			add := func(address, gateway string) {
				t.Helper()
				// Nobody else on this wire could have it: no time is spent on finding that out.
				nodad := ""
				if strings.Contains(address, ":") {
					nodad = " nodad"
				}
				network("ip address add "+address+test.bits+" dev eth0"+nodad, "ip route replace default via "+gateway+" dev eth0")
			}
			network("ip link add eth0 type veth peer name wire", "ip link set wire up", "ip link set eth0 up", test.alone)
			add(test.first, test.gateways[0])

			if result := m.init(t); result.Code != 0 {
				t.Fatal(result)
			}
			reeved := m.startReeved(t)
			id := m.home(t, reeved).Node.ID
			m.known(t, id, test.first)

			made := m.lastEvent(t)
			network("ip address delete " + test.first + test.bits + " dev eth0")
			eventually.True(t, patience, "the node says that it has no address", func() (bool, string) {
				said := m.mustReeve(t, "status")
				return strings.Contains(said, "the node has no address now"), said
			})
			m.mustReeve(t, "node", "label", id, "written=without")

			add(test.second, test.gateways[1])
			m.known(t, id, test.second)
			if content, err := os.ReadFile(m.hosts); err != nil || strings.Contains(string(content), test.first+"\t") {
				t.Errorf("the hosts file has the former address (%v):\n%s", err, content)
			}
			ca := filepath.Join(m.Home, "ca.pem")
			if err := os.WriteFile(ca, []byte(m.mustReeve(t, "ca")), 0o644); err != nil {
				t.Fatal(err)
			}
			listed := m.StartAlone(t, "node", "list", "--address", net.JoinHostPort(test.second, "7443"), "--ca", ca, "--owner-key", m.key).Wait(t, patience)
			if listed.Code != 0 || !strings.Contains(listed.Stdout, test.second) || !strings.Contains(listed.Stdout, "written=without") {
				t.Errorf("asked at its new address: %s", listed)
			}
			m.wasHomeSince(t, made)
			m.stopReeved(t, reeved)
		})
	}
}

// known waits until the node has an address, and no other, in the cluster's list of nodes, in its directory of curators, and in the hosts file.
func (m initialized) known(t *testing.T, id, address string) {
	t.Helper()
	eventually.True(t, patience, "the node is known at "+address, func() (bool, string) {
		document := m.mustReeve(t, "status", "-o", "json")
		status, err := devcluster.ParseStatus(document)
		if err != nil {
			t.Fatal(err)
		}
		hosts, err := os.ReadFile(m.hosts)
		if err != nil {
			t.Fatal(err)
		}
		listed := m.mustReeve(t, "node", "list")
		curators := status.Cluster.Curators
		return status.Up(devcluster.DefaultRoles...) && slices.Equal(status.Node.Addresses, []string{address}) && slices.Contains(curators, net.JoinHostPort(address, "7443")) && len(curators) == 1 &&
			strings.Contains(string(hosts), address+"\t"+id) && strings.Contains(listed, " "+address+" "), document + string(hosts) + listed
	})
}

// events are those of the node.
func (m initialized) events(t *testing.T) []devcluster.Event {
	t.Helper()
	var document struct {
		Events []devcluster.Event `json:"events"`
	}
	if err := json.Unmarshal([]byte(m.mustReeve(t, "events", "-o", "json")), &document); err != nil {
		t.Fatal(err)
	}
	return document.Events
}

// lastEvent is the number of the node's last event.
func (m initialized) lastEvent(t *testing.T) (last uint64) {
	t.Helper()
	for _, event := range m.events(t) {
		last = max(last, event.Sequence)
	}
	return last
}

// wasHomeSince fails the test if the node was cut off from its cluster after an event.
func (m initialized) wasHomeSince(t *testing.T, since uint64) {
	t.Helper()
	for _, event := range m.events(t) {
		if event.Sequence > since && event.Type == "MembershipChanged" && event.Details["to"] == "Split" {
			t.Errorf("the node was Split: %s", event.Message)
		}
	}
}
