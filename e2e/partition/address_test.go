package partition_test

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// higher is an address of the same subnet that no node has.
func higher(t *testing.T, address string) string {
	t.Helper()
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	bytes := parsed.As4()
	bytes[3] += 100
	return netip.AddrFrom4(bytes).String()
}

// move gives a node another address, in place of the one that it has.
func move(t *testing.T, c *devcluster.Cluster, number int) (from, to string) {
	t.Helper()
	from = c.Address(t, number)
	to = higher(t, from)
	c.ExecIn(t, number, "ip", "address", "delete", from+"/24", "dev", "eth0")
	c.ExecIn(t, number, "ip", "address", "add", to+"/24", "dev", "eth0")
	return from, to
}

// followed waits until all know a node at its new address: the cluster's directory, the members of the store, the hosts files of all nodes, and where the node says that it
// is reached.
func followed(t *testing.T, c *devcluster.Cluster, number int, from, to string) {
	t.Helper()
	allHome(t, c)
	id := statuses(t, c)[number].Node.ID
	asked := others(number)[0]
	fleet.Await(t, c, asked, soon, "the cluster has the new address", func(nodes []fleet.Node) bool {
		return fleet.ByID(nodes, id).Healthy && slices.Equal(fleet.ByID(nodes, id).Addresses, []string{to})
	})
	for _, other := range all {
		hosts := filepath.Join(c.NodeDirectory(other), "hosts")
		eventually.True(t, soon, "the hosts file of every node has the new address, and not the former one", func() (bool, string) {
			content, err := os.ReadFile(hosts)
			return err == nil && strings.Contains(string(content), to+"\t"+id) && !strings.Contains(string(content), from+"\t"), string(content)
		})
	}
	await(t, c, "every node knows where the cluster API is served", func(seen map[int]devcluster.Status) bool {
		for _, status := range seen {
			if !slices.Contains(status.Cluster.Curators, to+":7443") || slices.Contains(status.Cluster.Curators, from+":7443") {
				return false
			}
		}
		return seen[number].Node.APIAddress == to+":7444"
	})
	peers(t, c, asked, to)
}

// peers waits until another member of the store is connected with the one that has moved.
func peers(t *testing.T, c *devcluster.Cluster, asked int, to string) {
	t.Helper()
	eventually.True(t, soon, "the other members of the store are connected with the one that has moved", func() (bool, string) {
		connections := c.ExecIn(t, asked, "ss", "-tnH", "state", "established")
		return strings.Contains(connections, to+":7445"), connections
	})
}

// withoutThird takes away the node that is neither of two, so that these are the quorum, and brings it back.
func withoutThird(t *testing.T, c *devcluster.Cluster, moved, asked int) {
	t.Helper()
	third := slices.DeleteFunc(others(moved), func(number int) bool { return number == asked })[0]
	c.MustReeve(t, "dev", "down", "--node", strconv.Itoa(third))
	writes(t, c, asked, statuses(t, c)[moved].Node.ID, "without")
	c.MustReeve(t, "dev", "up", "--detach")
	allHome(t, c)
}

// virtual is an address that moves from node to node, as keepalived has them.
const virtual = "10.0.0.2"

// passed moves a virtual address from member to member. It is told besides the address of the node, and changes nothing else.
func passed(t *testing.T, c *devcluster.Cluster, members ...int) {
	t.Helper()
	for _, number := range members {
		own, id, asked := c.Address(t, number), statuses(t, c)[number].Node.ID, others(number)[0]
		told := func(addresses ...string) {
			t.Helper()
			fleet.Await(t, c, asked, soon, "the cluster has the node's own address first", func(nodes []fleet.Node) bool {
				return slices.Equal(fleet.ByID(nodes, id).Addresses, addresses)
			})
		}
		c.ExecIn(t, number, "ip", "address", "add", virtual+"/32", "dev", "eth0")
		told(own, virtual)
		writes(t, c, asked, id, "virtual")
		peers(t, c, asked, own)
		if connections := c.ExecIn(t, asked, "ss", "-tnH", "state", "established"); strings.Contains(connections, virtual+":") {
			t.Errorf("somebody has connected to the virtual address:\n%s", connections)
		}
		c.ExecIn(t, number, "ip", "address", "delete", virtual+"/32", "dev", "eth0")
		told(own)
	}
}

// TestAddressChanges gives nodes other addresses, while they run and while they are off, one after the other. All follow, and the cluster goes on. A virtual address that moves among them
// changes nothing.
func TestAddressChanges(t *testing.T) {
	t.Parallel()
	c := three(t)

	// The member of the store that leads, while it runs.
	leading := leader(t, c)
	passed(t, c, leading, others(leading)[0])
	from, to := move(t, c, leading)
	writes(t, c, others(leading)[0], statuses(t, c)[leading].Node.ID, "moved")
	followed(t, c, leading, from, to)
	withoutThird(t, c, leading, others(leading)[0])

	// Another one, whose core is not there at that time.
	other := others(leading)[0]
	core := c.Nodes(t)[other].PID
	c.Kill(t, core)
	from, to = move(t, c, other)
	c.MustReeve(t, "dev", "up", "--detach")
	followed(t, c, other, from, to)

	// Off and on again, they have the addresses that they were made with.
	restarted := c.Namespace(t, other)
	c.Down(t)
	if _, err := os.Stat(filepath.Join("/run/netns", restarted)); err == nil {
		t.Errorf("dev down has left the network namespace %s", restarted)
	}
}

// TestAllAddressesAtOnce starts all nodes with other addresses than they had when they were stopped. With the addresses that they had, besides the new ones, they are a cluster again. When all addresses
// change once more, the nodes find each other by the DNS name of their parameters, and nobody does anything.
func TestAllAddressesAtOnce(t *testing.T) {
	t.Parallel()
	c := three(t)
	// The former addresses besides the new ones: they find each other, with nothing restarted.
	for number, address := range allMoved(t, c) {
		c.ExecIn(t, number, "ip", "address", "add", address+"/24", "dev", "eth0")
	}
	allHome(t, c)

	c.Down(t)
	hosts := machines(t, c, moveSubnet(t, c, 0x40))
	nameMachines(t, c)
	// Mounts pass on, as the nodes' network namespaces are mounts that stay for later commands. That of the hosts file does not.
	if result := c.Run(t, "unshare", "--mount", "--propagation", "unchanged", "sh", "-euc", `mount --make-slave "$(findmnt -no TARGET -T /etc/hosts)"; mount --bind "$1" /etc/hosts; shift; exec "$@"`, "sh", hosts,
		c.Programs.Reeve(), "dev", "up", "--detach", "--dir", c.Directory); result.Code != 0 {
		t.Fatal(result)
	}
	allHome(t, c)
}

// machinesName is the DNS name of all machines.
const machinesName = "machines.reeve.invalid"

// machines is a hosts file that resolves the DNS name of all machines.
func machines(t *testing.T, c *devcluster.Cluster, subnet netip.Addr) (file string) {
	t.Helper()
	content := "127.0.0.1\tlocalhost\n"
	for _, number := range all {
		bytes := subnet.As4()
		bytes[3] = byte(number)
		content += netip.AddrFrom4(bytes).String() + "\t" + machinesName + "\n"
	}
	file = filepath.Join(c.Home, "machines")
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// nameMachines writes the DNS name of the machines into the parameters of all nodes.
func nameMachines(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	for _, number := range all {
		file := filepath.Join(c.NodeDirectory(number), "reeved.yaml")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := strings.Replace(string(content), "\nnetwork:\n", "\nnetwork:\n  peers: ["+machinesName+"]\n", 1)
		if named == string(content) {
			t.Fatalf("the parameters have no network:\n%s", content)
		}
		if err := os.WriteFile(file, []byte(named), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAllAddressesAtOnceAndPeers is the same, where the former addresses are gone for good: each node is told on which machines the others are. Then all know the new addresses.
func TestAllAddressesAtOnceAndPeers(t *testing.T) {
	t.Parallel()
	c := three(t)
	powerCut(t, c)
	allMoved(t, c)
	tell := func(number int, addresses ...string) {
		t.Helper()
		run, err := filepath.EvalSymlinks(filepath.Join(c.NodeDirectory(number), "run"))
		if err != nil {
			t.Fatal(err)
		}
		arguments := append([]string{"node", "peers", "self", "--socket", filepath.Join(run, "node.sock")}, addresses...)
		if result := c.StartAlone(t, arguments...).Wait(t, time.Minute); result.Code != 0 {
			t.Fatal(result)
		}
	}
	for _, number := range all {
		addresses := []string{"nobody.invalid"}
		for _, other := range others(number) {
			addresses = append(addresses, c.Address(t, other))
		}
		tell(number, addresses...)
	}
	allHome(t, c)
	for _, number := range all {
		for _, other := range others(number) {
			peers(t, c, number, c.Address(t, other))
		}
	}
	// They find each other by what the cluster knows now. A node knows it as soon as it knows the curators' new addresses: a member may be stopped before it has applied those of all members.
	await(t, c, "every node knows where the curators are", func(seen map[int]devcluster.Status) bool {
		for _, status := range seen {
			for _, number := range all {
				if !slices.Contains(status.Cluster.Curators, c.Address(t, number)+":7443") {
					return false
				}
			}
		}
		return true
	})
	for _, number := range all {
		tell(number)
	}
	c.Down(t)
	c.MustReeve(t, "dev", "up", "--detach")
	allHome(t, c)
}

// allMoved starts all nodes with other addresses than they had when they were stopped, and returns those that they had. Each says whom it does not find where.
func allMoved(t *testing.T, c *devcluster.Cluster) (addresses map[int]string) {
	t.Helper()
	addresses = addressesOf(t, c)
	c.Down(t)
	moveSubnet(t, c, 0x80)
	if result := c.Reeve(t, "dev", "up", "--detach", "--timeout", "3s"); result.Code == 0 {
		t.Fatalf("nodes that cannot know of each other are up: %s", result)
	}
	seen := await(t, c, "every node says which members of the store it does not find, and where it looks for them", func(seen map[int]devcluster.Status) bool {
		for number, status := range seen {
			reason := status.Role("consensus").Reason
			for _, other := range others(number) {
				if status.Membership.State != "Split" || !strings.Contains(reason, seen[other].Node.ID+" at "+addresses[other]+":7445") || !strings.Contains(reason, "reeve node peers self") {
					return false
				}
			}
		}
		return len(seen) == len(all)
	})
	for _, number := range all {
		eventually.True(t, soon, "the store's status on a node names the members that it does not find", func() (bool, string) {
			result := c.StartAlone(t, "store", "status", "--dir", c.NodeDirectory(number)).Wait(t, soon)
			_, problem, _ := strings.Cut(result.Stdout, "\nProblem")
			for _, other := range others(number) {
				if !strings.Contains(problem, seen[other].Node.ID) {
					return false, result.String()
				}
			}
			return result.Code == 0, result.String()
		})
	}
	return addresses
}

// addressesOf are the addresses of all nodes.
func addressesOf(t *testing.T, c *devcluster.Cluster) map[int]string {
	t.Helper()
	addresses := make(map[int]string)
	for number, node := range c.Nodes(t) {
		addresses[number] = node.Address
	}
	return addresses
}

// moveSubnet gives the nodes, which are off, the subnet that differs in one bit: they start with other addresses. It returns that of the subnet.
func moveSubnet(t *testing.T, c *devcluster.Cluster, bit byte) (to netip.Addr) {
	t.Helper()
	file := filepath.Join(c.State(), "network.json")
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var network struct {
		Version int          `json:"version"`
		Subnet  netip.Prefix `json:"subnet"`
	}
	if err := json.Unmarshal(kept, &network); err != nil {
		t.Fatal(err)
	}
	bytes := network.Subnet.Addr().As4()
	bytes[2] ^= bit
	network.Subnet = netip.PrefixFrom(netip.AddrFrom4(bytes), 24)
	moved, err := json.Marshal(network)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, moved, 0o644); err != nil {
		t.Fatal(err)
	}
	return network.Subnet.Addr()
}

// powerCut stops all nodes and starts them again. They have the same addresses.
func powerCut(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	addresses := addressesOf(t, c)
	c.Down(t)
	c.MustReeve(t, "dev", "up", "--detach")
	allHome(t, c)
	if now := addressesOf(t, c); !maps.Equal(now, addresses) {
		t.Errorf("the nodes had the addresses %v, and have %v", addresses, now)
	}
}
