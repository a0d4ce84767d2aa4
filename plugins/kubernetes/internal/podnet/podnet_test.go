package podnet_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/podnet"
)

// cluster is machines on one wire. The wire is a machine too, which knows nothing of pods: the outside.
type cluster struct {
	wire  *namespace
	nodes []*node
}

const (
	outside4, outside6 = "192.0.2.254", "2001:db8::254"
	cluster4, cluster6 = "10.244.0.0/16", "fd00:10:244::/48"
)

// node is one of the machines.
type node struct {
	*namespace
	config  podnet.Config
	network *podnet.Network
	// addresses are the node's own, of IPv4 and IPv6.
	addresses [2]netip.Addr
	pods      int
}

// newCluster makes machines whose pod networks are down. over6: the nodes' addresses are of IPv6.
func newCluster(t *testing.T, count int, over6 bool) *cluster {
	t.Helper()
	c := &cluster{wire: newNamespace(t, "outside")}
	c.wire.must(t, func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "wire"}}) })
	c.wire.must(t, func() error { return raise("wire") })
	c.wire.give(t, "wire", outside4+"/24", outside6+"/64")
	for number := 1; number <= count; number++ {
		n := &node{namespace: newNamespace(t, fmt.Sprint("node ", number))}
		connect(t, c.wire, fmt.Sprint("port", number), n.namespace, "eth0")
		c.wire.must(t, func() error {
			port, err := netlink.LinkByName(fmt.Sprint("port", number))
			if err != nil {
				return err
			}
			bridge, err := netlink.LinkByName("wire")
			if err != nil {
				return err
			}
			return netlink.LinkSetMaster(port, bridge)
		})
		n.addresses = [2]netip.Addr{netip.MustParseAddr(fmt.Sprint("192.0.2.", number)), netip.MustParseAddr(fmt.Sprint("2001:db8::", number))}
		n.give(t, "eth0", n.addresses[0].String()+"/24", n.addresses[1].String()+"/64")
		n.route(t, "0.0.0.0/0", outside4, "eth0")
		n.route(t, "::/0", outside6, "eth0")
		directory := t.TempDir()
		n.config = podnet.Config{
			NodeID: fmt.Sprint("reeve-", number), Address: n.addresses[0],
			Cluster:   []netip.Prefix{netip.MustParsePrefix(cluster4), netip.MustParsePrefix(cluster6)},
			Pods:      []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", number)), netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", number))},
			Directory: filepath.Join(directory, "addresses"), ConfDir: filepath.Join(directory, "net.d"),
		}
		if over6 {
			n.config.Address = n.addresses[1]
		}
		n.must(t, func() error {
			values, err := podnet.Sysctls(n.config.Pods)
			if err != nil {
				return err
			}
			for name, value := range values {
				n.sysctl(t, name, value)
			}
			return nil
		})
		c.nodes = append(c.nodes, n)
	}
	return c
}

func (n *node) up(t *testing.T) {
	t.Helper()
	n.must(t, func() (err error) {
		n.network, err = podnet.Up(t.Context(), n.config)
		return err
	})
}

func (n *node) down(t *testing.T) {
	t.Helper()
	n.must(t, func() error { return podnet.Down(t.Context(), n.config) })
}

func (n *node) setPeers(peers []podnet.Peer) error {
	return n.do(func() error { return n.network.SetPeers(peers) })
}

// peers are all nodes as peers.
func (c *cluster) peers() []podnet.Peer {
	var peers []podnet.Peer
	for _, n := range c.nodes {
		peers = append(peers, podnet.Peer{NodeID: n.config.NodeID, Address: n.config.Address, Pods: n.config.Pods})
	}
	return peers
}

func (c *cluster) up(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		n.up(t)
		if err := n.setPeers(c.peers()); err != nil {
			t.Fatal(err)
		}
	}
}

// pod is a pod of a node.
type pod struct {
	*namespace
	// addresses are those of IPv4 and IPv6.
	addresses [2]netip.Addr
}

// newPod attaches a pod as the plugin ptp does.
func (n *node) newPod(t *testing.T) *pod {
	t.Helper()
	n.pods++
	p := &pod{namespace: newNamespace(t, fmt.Sprintf("pod %d of %s", n.pods, n.name))}
	side := fmt.Sprint("pod", n.pods)
	connect(t, n.namespace, side, p.namespace, "eth0")
	// Who forwards asks for neighbours with this address.
	n.give(t, side, "fe80::1/64")
	p.give(t, "eth0", "fe80::2/64")
	for i, pods := range n.config.Pods {
		gateway := pods.Addr().Next()
		address := gateway
		for range n.pods {
			address = address.Next()
		}
		p.addresses[i] = address
		p.give(t, "eth0", host(address))
		p.route(t, host(gateway), "", "eth0")
		p.route(t, everything(gateway), gateway.String(), "eth0")
		n.give(t, side, host(gateway))
		n.route(t, host(address), "", side)
	}
	return p
}

func everything(of netip.Addr) string {
	if of.Is4() {
		return "0.0.0.0/0"
	}
	return "::/0"
}

// TestPods: pods, nodes and the outside reach each other, over IPv4 and IPv6, and are seen as who they should be.
func TestPods(t *testing.T) {
	for name, over6 := range map[string]bool{"over IPv4": false, "over IPv6": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2, over6)
			c.up(t)
			here, there := c.nodes[0], c.nodes[1]
			a, b, other := here.newPod(t), here.newPod(t), there.newPod(t)
			for i, outside := range []string{outside4, outside6} {
				gateway := here.config.Pods[i].Addr().Next().String()
				atOther := other.serve(t, other.addresses[i].String())
				a.reaches(t, atOther, a.addresses[i].String())
				a.reaches(t, b.serve(t, b.addresses[i].String()), a.addresses[i].String())
				here.reaches(t, atOther, gateway)
				here.reaches(t, a.serve(t, a.addresses[i].String()), gateway)
				other.reaches(t, a.serve(t, a.addresses[i].String()), other.addresses[i].String())
				a.reaches(t, here.serve(t, here.addresses[i].String()), a.addresses[i].String())
				a.reaches(t, here.serve(t, gateway), a.addresses[i].String())
				a.reaches(t, there.serve(t, there.config.Pods[i].Addr().Next().String()), a.addresses[i].String())
				// What is no pod knows no pods.
				a.reaches(t, there.serve(t, there.addresses[i].String()), here.addresses[i].String())
				a.reaches(t, c.wire.serve(t, outside), here.addresses[i].String())
				// A service, as kube-proxy makes one: a pod of the same node answers, and sees who asks.
				service := []string{"10.96.0.1", "fd00:10:96::1"}[i]
				_, port, _ := net.SplitHostPort(b.serve(t, b.addresses[i].String()))
				header := []string{"ip", "ip6"}[i]
				here.run(t, "nft", "add table "+header+" services; add chain "+header+" services arriving { type nat hook prerouting priority dstnat; }; add rule "+
					header+" services arriving "+header+" daddr "+service+" dnat to "+b.addresses[i].String())
				a.reaches(t, net.JoinHostPort(service, port), a.addresses[i].String())
				// Addresses of pods that are not there, on this node, on a node that is not there.
				for _, absent := range []string{[]string{"10.244.1.99", "fd00:10:244:1::99"}[i], []string{"10.244.77.7", "fd00:10:244:77::7"}[i]} {
					a.cannotReach(t, absent)
					here.cannotReach(t, absent)
				}
			}
		})
	}
}

// TestUpAgain: another process goes on with what is there. Nothing changes, and connections live on.
func TestUpAgain(t *testing.T) {
	c := newCluster(t, 2, false)
	c.up(t)
	here, there := c.nodes[0], c.nodes[1]
	a, b := here.newPod(t), there.newPod(t)
	open, err := a.talk(b.serve(t, b.addresses[0].String()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	before := here.state(t)
	here.up(t)
	if changed := differences(before, here.state(t)); changed != "" {
		t.Errorf("Up has changed:\n%s", changed)
	}
	// Before anybody has said who the peers are.
	if err := open.say("after"); err != nil {
		t.Error(err)
	}
	if err := here.setPeers(c.peers()); err != nil {
		t.Error(err)
	}
	if changed := differences(before, here.state(t)); changed != "" {
		t.Errorf("SetPeers has changed:\n%s", changed)
	}
	if err := open.say("at last"); err != nil {
		t.Error(err)
	}
}

// TestPutRight: what has been changed or lost is put right by Up and SetPeers.
func TestPutRight(t *testing.T) {
	c := newCluster(t, 2, false)
	c.up(t)
	here := c.nodes[0]
	a, b := here.newPod(t), c.nodes[1].newPod(t)
	server := b.serve(t, b.addresses[0].String())
	right := here.state(t)
	for _, damage := range [][]string{
		{"ip", "link", "set", podnet.Device, "down"},
		{"ip", "link", "set", podnet.Device, "mtu", "1300"},
		{"ip", "address", "flush", "dev", podnet.Device},
		{"ip", "address", "add", "10.9.9.9/32", "dev", podnet.Device},
		{"ip", "route", "flush", "proto", "0x52"},
		{"ip", "-6", "route", "flush", "proto", "0x52"},
		{"ip", "neighbour", "flush", "nud", "permanent", "dev", podnet.Device},
		{"nft", "flush", "ruleset"},
		{"nft", "delete", "set", "inet", podnet.Table, "peers4"},
		{"nft", "flush", "set", "inet", podnet.Table, "peers4"},
		{"nft", "flush", "chain", "inet", podnet.Table, "leaving"},
	} {
		// One of them is refused, since the set is in use.
		_ = here.do(func() error { return exec.Command(damage[0], damage[1:]...).Run() })
		here.up(t)
		if err := here.setPeers(c.peers()); err != nil {
			t.Error(err)
		}
		if changed := differences(right, here.state(t)); changed != "" {
			t.Errorf("after %v:\n%s", damage, changed)
		}
		a.reaches(t, server, a.addresses[0].String())
	}
}

// TestTableOfAnotherVersion: a table that cannot be changed into this version's is made anew.
func TestTableOfAnotherVersion(t *testing.T) {
	c := newCluster(t, 1, false)
	n := c.nodes[0]
	n.up(t)
	right := n.state(t)
	n.run(t, "nft", "delete", "table", "inet", podnet.Table)
	n.run(t, "nft", "add", "table", "inet", podnet.Table)
	n.run(t, "nft", "add", "set", "inet", podnet.Table, "pods4", "{", "type", "inet_service", ";", "}")
	n.up(t)
	if changed := differences(right, n.state(t)); changed != "" {
		t.Errorf("it is:\n%s", changed)
	}
}

// TestPeersChange: a node comes with another address, one comes with other ranges, one leaves.
func TestPeersChange(t *testing.T) {
	c := newCluster(t, 3, false)
	c.up(t)
	here, there := c.nodes[0], c.nodes[1]
	a, b := here.newPod(t), there.newPod(t)
	first := b.serve(t, b.addresses[0].String())
	a.reaches(t, first, a.addresses[0].String())

	there.give(t, "eth0", "192.0.2.22/24")
	there.config.Address = netip.MustParseAddr("192.0.2.22")
	c.up(t)
	a.reaches(t, first, a.addresses[0].String())
	if state := strings.Join(here.state(t), "\n"); strings.Contains(state, " 192.0.2.2 ") || !strings.Contains(state, " 192.0.2.22 ") {
		t.Errorf("the peer's former address is left:\n%s", state)
	}

	// The ranges of two nodes are exchanged, once the pods are gone.
	there.run(t, "ip", "link", "delete", "pod1")
	there.config.Pods, c.nodes[2].config.Pods = c.nodes[2].config.Pods, there.config.Pods
	c.up(t)
	moved := there.newPod(t)
	a.reaches(t, moved.serve(t, moved.addresses[0].String()), a.addresses[0].String())

	alone := newAlone(t)
	if err := here.setPeers(nil); err != nil {
		t.Error(err)
	}
	a.cannotReach(t, moved.addresses[0].String())
	if changed := differences(alone, onlyOurs(here.state(t))); changed != "" {
		t.Errorf("of peers that have left there is:\n%s", changed)
	}
}

// newAlone is the state of ours on the first node of another cluster that has no peers.
func newAlone(t *testing.T) []string {
	t.Helper()
	c := newCluster(t, 1, false)
	c.nodes[0].up(t)
	return onlyOurs(c.nodes[0].state(t))
}

// onlyOurs are the lines that speak of the interface of the pod network, or of its neighbours.
func onlyOurs(state []string) []string {
	return slices.DeleteFunc(slices.Clone(state), func(line string) bool {
		return !strings.Contains(line, podnet.Device) && !strings.Contains(line, "protocol 82") || strings.HasPrefix(line, "link ")
	})
}

// TestPeersThatCannotBe: those that can be reached are set, and the others are said.
func TestPeersThatCannotBe(t *testing.T) {
	c := newCluster(t, 2, false)
	c.up(t)
	here := c.nodes[0]
	a, b := here.newPod(t), c.nodes[1].newPod(t)
	peers := append(c.peers(),
		podnet.Peer{NodeID: "reeve-no-address", Pods: []netip.Prefix{netip.MustParsePrefix("10.244.50.0/24")}},
		podnet.Peer{NodeID: "reeve-no-pods", Address: netip.MustParseAddr("192.0.2.50")},
		podnet.Peer{NodeID: "reeve-other-family", Address: netip.MustParseAddr("2001:db8::50"), Pods: []netip.Prefix{netip.MustParsePrefix("10.244.50.0/24")}},
		podnet.Peer{NodeID: "reeve-overlap", Address: netip.MustParseAddr("192.0.2.51"), Pods: []netip.Prefix{netip.MustParsePrefix("10.244.2.128/25")}},
		podnet.Peer{NodeID: "reeve-my-own", Address: netip.MustParseAddr("192.0.2.52"), Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
	)
	slices.Reverse(peers)
	err := here.setPeers(peers)
	for _, want := range []string{"reeve-other-family", "reeve-overlap", "reeve-my-own"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, and nothing of %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "reeve-no-") {
		t.Errorf("one of which nothing is known yet is a problem: %v", err)
	}
	a.reaches(t, b.serve(t, b.addresses[0].String()), a.addresses[0].String())
	here.run(t, "ip", "route", "add", "10.244.3.0/24", "via", outside4)
	third := append(c.peers(), podnet.Peer{NodeID: "reeve-3", Address: netip.MustParseAddr("192.0.2.3"), Pods: []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}})
	if err := here.setPeers(third); err == nil || !strings.Contains(err.Error(), "10.244.3.0/24 is not Reeve's") {
		t.Errorf("the route is another's, and it says %v", err)
	}
}

// TestStranger: what comes from a machine that is no peer does not get to pods, and what comes from it when it is one does.
func TestStranger(t *testing.T) {
	c := newCluster(t, 2, false)
	c.up(t)
	here, stranger := c.nodes[0], c.nodes[1]
	if err := here.setPeers(nil); err != nil {
		t.Fatal(err)
	}
	b := stranger.newPod(t)
	var sender net.Conn
	b.must(t, func() (err error) {
		sender, err = net.Dial("udp", "10.244.1.1:9")
		return err
	})
	defer func() { _ = sender.Close() }()
	var receiver net.PacketConn
	here.must(t, func() (err error) {
		receiver, err = net.ListenPacket("udp", "10.244.1.1:9")
		return err
	})
	defer func() { _ = receiver.Close() }()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := sender.Write([]byte("stranger")); err != nil {
			t.Fatal(err)
		}
		listed := here.run(t, "nft", "list", "chain", "inet", podnet.Table, "arriving")
		if strings.Contains(listed, "saddr != @peers4 counter packets ") && !strings.Contains(listed, "@peers4 counter packets 0 ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing is dropped:\n%s", listed)
		}
	}
	packet := make([]byte, 100)
	raw, err := receiver.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var came error
	if err := raw.Read(func(fd uintptr) bool {
		_, _, came = unix.Recvfrom(int(fd), packet, unix.MSG_DONTWAIT)
		return true
	}); err != nil || !errors.Is(came, unix.EAGAIN) {
		t.Errorf("a stranger's packet came: %q, %v, %v", packet, err, came)
	}
	if err := here.setPeers(c.peers()); err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Write([]byte("peer")); err != nil {
		t.Fatal(err)
	}
	if err := receiver.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for {
		length, _, err := receiver.ReadFrom(packet)
		if err != nil {
			t.Fatal(err)
		}
		// The kernel may still have had packets of the stranger, and has let them in now that it is a peer.
		if string(packet[:length]) == "peer" {
			break
		}
	}
}

// TestPodThatForges: what a pod makes itself does not get into the pod network of another node, though it would arrive there with the address of a peer, nor into that of its own.
func TestPodThatForges(t *testing.T) {
	c := newCluster(t, 2, false)
	c.up(t)
	pod := c.nodes[0].newPod(t)
	forged := append([]byte{8, 0, 0, 0, 'r', 'e', 'e', 0}, "from whom it says"...)
	for n, chain := range []string{"arriving", "passing"} {
		var sender net.Conn
		pod.must(t, func() (err error) {
			sender, err = net.Dial("udp", net.JoinHostPort(c.peers()[n].Address.String(), strconv.Itoa(podnet.Port)))
			return err
		})
		defer func() { _ = sender.Close() }()
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if _, err := sender.Write(forged); err != nil {
				t.Fatal(err)
			}
			listed := c.nodes[0].run(t, "nft", "list", "chain", "inet", podnet.Table, chain)
			if dropped := regexp.MustCompile(`counter packets [1-9]`).MatchString(listed); dropped {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("nothing of a pod is dropped:\n%s", listed)
			}
		}
	}
}

// TestDown: nothing is left, and what is others' is.
func TestDown(t *testing.T) {
	c := newCluster(t, 2, false)
	n := c.nodes[0]
	n.run(t, "nft", "add", "table", "inet", "others")
	n.run(t, "ip", "route", "add", "198.51.100.0/24", "via", outside4, "proto", "static")
	before := n.state(t)
	n.down(t) // of nothing
	if changed := differences(before, n.state(t)); changed != "" {
		t.Errorf("Down of nothing has changed:\n%s", changed)
	}
	c.up(t)
	n.newPod(t)
	if differences(before, n.state(t)) == "" {
		t.Fatal("nothing was made")
	}
	n.down(t)
	if changed := differences(before, n.state(t)); changed != "" {
		t.Errorf("there is left:\n%s", changed)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(n.config.ConfDir), "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	n.down(t)
	n.up(t)
}

// TestTaken: another node's network is refused, and left alone.
func TestTaken(t *testing.T) {
	c := newCluster(t, 1, false)
	n := c.nodes[0]
	n.up(t)
	before := n.state(t)
	second := *n
	second.config.NodeID = "reeve-second"
	second.config.ConfDir = t.TempDir()
	second.config.Directory = filepath.Join(second.config.ConfDir, "addresses")
	err := n.do(func() error {
		_, err := podnet.Up(t.Context(), second.config)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), n.config.NodeID) {
		t.Errorf("two nodes have the interface: %v", err)
	}
	var taken *podnet.TakenError
	if err := n.do(func() error { return podnet.Down(t.Context(), second.config) }); !errors.As(err, &taken) {
		t.Errorf("the network of the other node is taken down: %v", err)
	}
	if changed := differences(before, n.state(t)); changed != "" {
		t.Errorf("the other node has changed:\n%s", changed)
	}
}

// TestRefused: what cannot be is said, and nothing is made.
func TestRefused(t *testing.T) {
	c := newCluster(t, 1, false)
	n := c.nodes[0]
	before := n.state(t)
	prefix, address := netip.MustParsePrefix, netip.MustParseAddr
	for name, test := range map[string]struct {
		change func(*podnet.Config)
		says   string
	}{
		"no node":                  {func(c *podnet.Config) { c.NodeID = "" }, "names no node"},
		"no address":               {func(c *podnet.Config) { c.Address = netip.Addr{} }, "no address of a node"},
		"another's address":        {func(c *podnet.Config) { c.Address = address("192.0.2.77") }, "no interface of this machine has the node's address 192.0.2.77"},
		"an address of pods":       {func(c *podnet.Config) { c.Address = address("10.244.1.1") }, "in the range of pods"},
		"no pods":                  {func(c *podnet.Config) { c.Pods = nil }, "a node has one range"},
		"two ranges of one family": {func(c *podnet.Config) { c.Pods = []netip.Prefix{prefix("10.1.0.0/24"), prefix("10.2.0.0/24")} }, "of the same family"},
		"no room":                  {func(c *podnet.Config) { c.Pods = []netip.Prefix{prefix("10.1.0.0/31")} }, "no room"},
		"everything":               {func(c *podnet.Config) { c.Cluster = []netip.Prefix{prefix("0.0.0.0/0")} }, "no range of pods"},
		"relative":                 {func(c *podnet.Config) { c.Directory = "addresses" }, "no directory"},
		"root":                     {func(c *podnet.Config) { c.ConfDir = "/" }, "no directory"},
		"more than can be carried": {func(c *podnet.Config) { c.MTU = 1451 }, "leaves them 1450"},
		"less than IPv6 allows":    {func(c *podnet.Config) { c.MTU = 1279 }, "need 1280"},
	} {
		config := n.config
		test.change(&config)
		err := n.do(func() error {
			_, err := podnet.Up(t.Context(), config)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.sysctl(t, "net/ipv4/ip_forward", "0")
	err := n.do(func() error {
		_, err := podnet.Up(t.Context(), n.config)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "net/ipv4/ip_forward is 0") {
		t.Errorf("without forwarding: %v", err)
	}
	if changed := differences(before, n.state(t)); changed != "" {
		t.Errorf("there was made:\n%s", changed)
	}
}

// TestOneFamily: a cluster of IPv4 alone, on machines on which IPv6 is turned off, and one of IPv6 alone.
func TestOneFamily(t *testing.T) {
	for i, name := range []string{"IPv4", "IPv6"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2, i == 1)
			for _, n := range c.nodes {
				n.config.Pods, n.config.Cluster = n.config.Pods[i:i+1], n.config.Cluster[i:i+1]
				if i == 0 {
					n.sysctl(t, "net/ipv6/conf/all/disable_ipv6", "1")
					n.sysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
				} else {
					n.sysctl(t, "net/ipv4/ip_forward", "0")
				}
			}
			here, there := c.nodes[0], c.nodes[1]
			before := here.state(t)
			c.up(t)
			c.up(t)
			gateway := func(n *node) string { return n.config.Pods[0].Addr().Next().String() }
			here.reaches(t, there.serve(t, gateway(there)), gateway(here))
			here.down(t)
			if changed := differences(before, here.state(t)); changed != "" {
				t.Errorf("there is left:\n%s", changed)
			}
		})
	}
}

// TestSysctls: a machine that has its way out from a router keeps it when it forwards.
func TestSysctls(t *testing.T) {
	c := newCluster(t, 1, false)
	n := c.nodes[0]
	says := func(want map[string]string) {
		t.Helper()
		n.must(t, func() error {
			values, err := podnet.Sysctls(n.config.Pods)
			if err == nil && !maps.Equal(values, want) {
				t.Errorf("it says %v, and should say %v", values, want)
			}
			return err
		})
	}
	want := map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
	says(want)
	n.run(t, "ip", "-6", "route", "add", "default", "via", outside6, "dev", "eth0", "proto", "ra", "metric", "100")
	want["net/ipv6/conf/eth0/accept_ra"] = "2"
	says(want)
	n.config.Pods = n.config.Pods[:1]
	says(map[string]string{"net/ipv4/ip_forward": "1"})
}
