// Package partition cuts the nodes of a cluster off from each other, each of which has a network namespace of its own (`reeve dev up --netns`): what is cut does not arrive,
// and nobody is told so. The host goes on reaching every node, as an operator does who stands beside it.
package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// table is the nftables table in the namespaces.
const table = "reeve_partition"

// Network is the network of a cluster. Its methods may be called from several goroutines.
type Network struct {
	nodes map[int]devcluster.Node

	mu sync.Mutex
	// dropped holds for a node those whose packets do not arrive there, and which of them.
	dropped map[int]map[int]packets
}

// packets is what nftables matches of the packets of another node.
type packets string

const (
	allPackets packets = ""
	// newConnections begin a TCP connection. Those that stand go on.
	newConnections packets = "tcp flags & (syn | ack) == syn "
)

// Require skips the test where nodes cannot have namespaces, or nothing can be cut in them, and says why.
func Require(t testing.TB) {
	t.Helper()
	devcluster.RequireNamespaces(t)
	if _, err := nft(); err != nil {
		t.Skip("needs nft, of the package nftables")
	}
}

func nft() (string, error) {
	if path, err := exec.LookPath("nft"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/nft")
}

// New returns the network of a cluster that runs. When the test ends it is healed.
func New(t testing.TB, c *devcluster.Cluster) *Network {
	t.Helper()
	n := &Network{nodes: c.Nodes(t), dropped: make(map[int]map[int]packets)}
	for number, node := range n.nodes {
		if node.Namespace == "" {
			t.Fatalf("node %d has no network namespace: the cluster was made without --netns", number)
		}
	}
	t.Cleanup(func() {
		for number := range n.nodes {
			// One whose node was stopped is gone, with its rules.
			if err := n.apply(number, nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	return n
}

// Cut cuts two nodes off from each other.
func (n *Network) Cut(t testing.TB, a, b int) {
	t.Helper()
	n.change(t, func() { n.drop(a, b, allPackets); n.drop(b, a, allPackets) }, a, b)
}

// CutOneWay lets nothing that one node sends arrive at another. What that one sends does arrive.
func (n *Network) CutOneWay(t testing.TB, from, to int) {
	t.Helper()
	n.change(t, func() { n.drop(from, to, allPackets) }, to)
}

// RefuseNew lets no new connection of one node arrive at another, as a firewall does that lets out but not in. The connections that stand go on, and the other way stays open.
func (n *Network) RefuseNew(t testing.TB, from, to int) {
	t.Helper()
	n.change(t, func() { n.drop(from, to, newConnections) }, to)
}

// Admit lets all of one node arrive at another.
func (n *Network) Admit(t testing.TB, from, to int) {
	t.Helper()
	n.change(t, func() { delete(n.dropped[to], from) }, to)
}

// Isolate cuts a node off from all others.
func (n *Network) Isolate(t testing.TB, number int) {
	t.Helper()
	n.change(t, func() {
		for other := range n.nodes {
			if other != number {
				n.drop(number, other, allPackets)
				n.drop(other, number, allPackets)
			}
		}
	}, slices.Collect(maps.Keys(n.nodes))...)
}

// Heal takes everything back.
func (n *Network) Heal(t testing.TB) {
	t.Helper()
	n.change(t, func() { clear(n.dropped) }, slices.Collect(maps.Keys(n.nodes))...)
}

// Dropped is how many packets of a node did not arrive at another, since they were last cut off from each other.
func (n *Network) Dropped(t testing.TB, from, to int) int {
	t.Helper()
	path, err := nft()
	if err != nil {
		t.Fatal(err)
	}
	var listed []byte
	err = devcluster.InNamespace(n.nodes[to].Namespace, func() error {
		listed, err = exec.Command(path, "list", "table", "ip", table).Output()
		return err
	})
	if err != nil {
		t.Fatalf("nft as node %d: %v", to, err)
	}
	_, rule, _ := strings.Cut(string(listed), "ip saddr "+n.nodes[from].Address+" ")
	_, counted, _ := strings.Cut(rule, "counter packets ")
	count, _, _ := strings.Cut(counted, " ")
	dropped, _ := strconv.Atoi(count)
	return dropped
}

func (n *Network) drop(from, to int, which packets) {
	if n.dropped[to] == nil {
		n.dropped[to] = make(map[int]packets)
	}
	n.dropped[to][from] = which
}

func (n *Network) change(t testing.TB, edit func(), numbers ...int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	edit()
	for _, number := range numbers {
		if err := n.apply(number, n.dropped[number]); err != nil {
			t.Fatal(err)
		}
	}
}

// apply has a node drop what comes from others, where it arrives: a sender would be told of what it may not send. All of it in one transaction of nftables.
func (n *Network) apply(number int, from map[int]packets) error {
	node, ok := n.nodes[number]
	if !ok {
		return fmt.Errorf("there is no node %d to cut off", number)
	}
	var rules strings.Builder
	// Added first, so that there is one to delete.
	fmt.Fprintf(&rules, "add table ip %[1]s\ndelete table ip %[1]s\n", table)
	if len(from) > 0 {
		fmt.Fprintf(&rules, "add table ip %[1]s\nadd chain ip %[1]s arriving { type filter hook prerouting priority raw; }\n", table)
	}
	for _, other := range slices.Sorted(maps.Keys(from)) {
		fmt.Fprintf(&rules, "add rule ip %s arriving ip saddr %s %scounter drop\n", table, n.nodes[other].Address, from[other])
	}
	path, err := nft()
	if err != nil {
		return err
	}
	return devcluster.InNamespace(node.Namespace, func() error {
		command := exec.Command(path, "-f", "-")
		command.Stdin = strings.NewReader(rules.String())
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("nft as node %d: %w\n%s%s", number, err, output, rules.String())
		}
		return nil
	})
}
