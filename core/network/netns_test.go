package network

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestFollowsTheKernel changes the addresses of a network namespace.
func TestFollowsTheKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	inNamespace(t, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		change(t, handle.AddrAdd, link, "192.0.2.7/24")
		expect(ctx, t, room, "192.0.2.7")
		change(t, handle.AddrAdd, link, "198.51.100.1/24")
		expect(ctx, t, room, "192.0.2.7", "198.51.100.1")
		change(t, handle.AddrDel, link, "192.0.2.7/24")
		expect(ctx, t, room, "198.51.100.1")
	})
}

// TestProblem has a machine on which nothing reaches the node, then one that others do not reach. The last address stays published.
func TestProblem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	inNamespace(t, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		says := func(want string) {
			if _, err := room.Problem().Wait(ctx, func(problem string) bool { return strings.Contains(problem, want) && (want != "" || problem == "") }); err != nil {
				problem, _ := room.Problem().Get()
				t.Errorf("it never says %q: %v (now %q)", want, err, problem)
			}
		}
		says("the machine has no loopback address")
		loopback, err := handle.LinkByName("lo")
		if err == nil {
			err = handle.LinkSetUp(loopback)
		}
		if err != nil {
			t.Error(err)
		}
		if _, err := room.Problem().Wait(ctx, func(problem string) bool { return strings.HasPrefix(problem, "the node has no address now") }); err != nil {
			t.Error(err)
		}
		change(t, handle.AddrAdd, link, "192.0.2.7/24")
		says("")
		change(t, handle.AddrDel, link, "192.0.2.7/24")
		says("no address now")
		expect(ctx, t, room, "192.0.2.7")
	})
}

// TestTheFirstAddressStays adds addresses that would go before the first one, and starts the room again. The first one has its place again when it comes back.
func TestTheFirstAddressStays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	config := Config{Kept: filepath.Join(t.TempDir(), "address.json")}
	inNamespaceOf(t, config, nil, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		change(t, handle.AddrAdd, link, "10.77.0.1/24")
		expect(ctx, t, room, "10.77.0.1")
		change(t, handle.AddrAdd, link, "10.0.0.2/32") // of keepalived
		expect(ctx, t, room, "10.77.0.1", "10.0.0.2")
		change(t, handle.AddrAdd, link, "10.0.0.3/24")
		expect(ctx, t, room, "10.77.0.1", "10.0.0.3", "10.0.0.2")
	})
	// At the next start the other ones are there before it.
	both := func(handle *netlink.Handle, link netlink.Link) {
		change(t, handle.AddrAdd, link, "10.0.0.3/24")
		change(t, handle.AddrAdd, link, "10.77.0.1/24")
	}
	inNamespaceOf(t, config, both, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		expect(ctx, t, room, "10.77.0.1", "10.0.0.3")
		change(t, handle.AddrDel, link, "10.77.0.1/24")
		expect(ctx, t, room, "10.0.0.3")
		change(t, handle.AddrAdd, link, "10.77.0.1/24")
		expect(ctx, t, room, "10.77.0.1", "10.0.0.3")
	})
}

// TestDeprecatedAddresses: an address whose preferred lifetime is over is not chosen, and the one of an old prefix gives way to that of the new one, as routers announce them.
func TestDeprecatedAddresses(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	inNamespace(t, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		const preferred, over = 3600, 0
		// lives gives an address of which the kernel finds no duplicates, for an hour, and has it be preferred for some seconds.
		lives := func(seconds int) func(netlink.Link, *netlink.Addr) error {
			return func(link netlink.Link, address *netlink.Addr) error {
				address.Flags, address.ValidLft, address.PreferedLft = unix.IFA_F_NODAD, 3600, seconds
				return handle.AddrReplace(link, address)
			}
		}
		seen := room.Addresses().Watch()
		change(t, lives(preferred), link, "2001:db8:1::7/64")
		expect(ctx, t, room, "2001:db8:1::7")
		change(t, lives(over), link, "192.0.2.9/24")
		change(t, lives(over), link, "2001:db8:9::7/64")
		change(t, lives(preferred), link, "2001:db8:2::7/64")
		for now := []string(nil); !slices.Equal(now, []string{"2001:db8:1::7", "2001:db8:2::7"}); {
			var err error
			if now, err = seen.Next(ctx); err != nil {
				t.Errorf("the last address is never there: %v", err)
				return
			}
			if slices.Contains(now, "192.0.2.9") || slices.Contains(now, "2001:db8:9::7") {
				t.Errorf("the node's addresses are %v", now)
				return
			}
		}
		change(t, lives(over), link, "2001:db8:1::7/64")
		expect(ctx, t, room, "2001:db8:2::7")
		change(t, lives(preferred), link, "2001:db8:1::7/64")
		expect(ctx, t, room, "2001:db8:1::7", "2001:db8:2::7")
	})
}

// TestOtherInterfaces has the kernel say what is chosen: the interface of the default route, not that of containers, nor one that is switched off, nor a half of all addresses.
func TestOtherInterfaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	inNamespace(t, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		add := func(name string, addresses ...string) netlink.Link {
			other := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
			if err := errors.Join(handle.LinkAdd(other), handle.LinkSetUp(other)); err != nil {
				t.Errorf("link: %v", err)
			}
			for _, address := range addresses {
				change(t, handle.AddrAdd, other, address)
			}
			return other
		}
		route := func(link netlink.Link, network, gateway string) {
			_, to, err := net.ParseCIDR(network)
			if err == nil {
				err = handle.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Gw: net.ParseIP(gateway)})
			}
			if err != nil {
				t.Errorf("route %s: %v", network, err)
			}
		}
		change(t, handle.AddrAdd, link, "192.0.2.7/24")
		change(t, handle.AddrAdd, link, "2001:db8::7/64")
		route(link, "0.0.0.0/0", "192.0.2.254")
		containers := add("docker0", "172.17.0.1/16")
		route(containers, "0.0.0.0/1", "172.17.0.2") // as a VPN has it
		expect(ctx, t, room, "192.0.2.7", "2001:db8::7")
		second := add("eth1", "198.51.100.7/24")
		route(second, "198.18.0.0/15", "198.51.100.254")
		expect(ctx, t, room, "192.0.2.7", "2001:db8::7")
		if err := handle.LinkSetDown(link); err != nil { // takes its routes along
			t.Error(err)
		}
		expect(ctx, t, room, "172.17.0.1", "198.51.100.7")
	})
}

// TestNamedInterfaces names interfaces and networks.
func TestNamedInterfaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	inNamespaceOf(t, Config{Interfaces: []string{"10.0.0.0/8", "reeve1"}}, nil, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		change(t, handle.AddrAdd, link, "192.0.2.7/24")
		other := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "reeve1"}}
		if err := errors.Join(handle.LinkAdd(other), handle.LinkSetUp(other)); err != nil {
			t.Errorf("link: %v", err)
		}
		change(t, handle.AddrAdd, other, "198.51.100.7/24")
		expect(ctx, t, room, "198.51.100.7")
		change(t, handle.AddrAdd, link, "10.1.0.1/24")
		expect(ctx, t, room, "198.51.100.7", "10.1.0.1")
	})
}

// TestAnOverlayIsNotTheNode: what the pod network of Kubernetes gives its own interface, and every pod's link, is not where other nodes reach this one.
func TestAnOverlayIsNotTheNode(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	lacks := false
	inNamespace(t, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		change(t, handle.AddrAdd, link, "192.0.2.7/24")
		expect(ctx, t, room, "192.0.2.7")
		overlay := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "pods"}, VxlanId: 7, Port: 4789}
		if err := handle.LinkAdd(overlay); errors.Is(err, unix.EOPNOTSUPP) {
			lacks = true
			return
		} else if err != nil {
			t.Errorf("link: %v", err)
			return
		}
		if err := handle.LinkSetUp(overlay); err != nil {
			t.Errorf("link: %v", err)
			return
		}
		change(t, handle.AddrAdd, overlay, "10.244.0.1/32")
		pod := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "pod"}}
		if err := errors.Join(handle.LinkAdd(pod), handle.LinkSetUp(pod)); err != nil {
			t.Errorf("link: %v", err)
			return
		}
		change(t, handle.AddrAdd, pod, "10.244.0.1/32")
		// Had one of them been taken for the node's, it would have come before this one.
		change(t, handle.AddrAdd, pod, "198.51.100.1/24")
		seen := room.Addresses().Watch()
		for {
			now, err := seen.Next(ctx)
			if err != nil {
				t.Errorf("the last address is never there: %v", err)
				return
			}
			if slices.Contains(now, "10.244.0.1") {
				t.Errorf("the node's addresses are %v", now)
			}
			if slices.Equal(now, []string{"192.0.2.7", "198.51.100.1"}) {
				return
			}
		}
	})
	if lacks {
		t.Skip("cannot run: the kernel has no vxlan")
	}
}

// inNamespace runs the room in a network namespace of its own, with one interface, until do has returned. It skips the test if the kernel has no bridges.
func inNamespace(t *testing.T, do func(context.Context, *netlink.Handle, netlink.Link, *Room)) {
	t.Helper()
	inNamespaceOf(t, Config{}, nil, do)
}

// inNamespaceOf is inNamespace with a configuration, and with something that is done before the room runs; nil: nothing is.
func inNamespaceOf(t *testing.T, config Config, before func(*netlink.Handle, netlink.Link), do func(context.Context, *netlink.Handle, netlink.Link, *Room)) {
	t.Helper()
	config.Log = hclog.NewNullLogger()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	done, lacks := make(chan struct{}), false
	go func() {
		defer close(done)
		// The thread is never unlocked, so it ends with this goroutine and takes its namespace along. The room runs in this thread.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare: %v", err)
			return
		}
		// A handle keeps the namespace in which it was made, whoever uses it.
		handle, err := netlink.NewHandle()
		if err != nil {
			t.Error(err)
			return
		}
		defer handle.Close()
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "reeve0"}}
		if err := handle.LinkAdd(link); errors.Is(err, unix.EOPNOTSUPP) {
			lacks = true
			return
		} else if err != nil {
			t.Errorf("link: %v", err)
			return
		}
		if err := handle.LinkSetUp(link); err != nil {
			t.Errorf("link: %v", err)
			return
		}
		if before != nil {
			before(handle, link)
		}
		room := New(config)
		runCtx, stop := context.WithCancel(ctx)
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			defer stop()
			do(ctx, handle, link, room)
		}()
		if err := room.Run(runCtx); err != nil {
			t.Errorf("run: %v", err)
		}
		<-changed
	}()
	<-done
	if lacks {
		t.Skip("cannot run: the kernel has no bridge")
	}
}

func change(t *testing.T, do func(netlink.Link, *netlink.Addr) error, link netlink.Link, address string) {
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		t.Error(err)
		return
	}
	if err := do(link, parsed); err != nil {
		t.Errorf("%s: %v", address, err)
	}
}

func expect(ctx context.Context, t *testing.T, room *Room, want ...string) {
	if _, err := room.Addresses().Wait(ctx, func(a []string) bool { return slices.Equal(a, want) }); err != nil {
		current, _ := room.Addresses().Get()
		t.Errorf("never %v: %v (now %v)", want, err, current)
	}
}

// TestSurvivesABurst overflows the socket's buffer: the room must go on and see what is so afterwards.
func TestSurvivesABurst(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	inNamespace(t, func(ctx context.Context, handle *netlink.Handle, link netlink.Link, room *Room) {
		change(t, handle.AddrAdd, link, "192.0.2.7/24")
		expect(ctx, t, room, "192.0.2.7")
		index := linkIndex(t, handle)
		for n := range 20000 {
			route := netlink.Route{LinkIndex: index, Dst: &net.IPNet{IP: net.IPv4(10, byte(n>>8), byte(n), 0), Mask: net.CIDRMask(24, 32)}}
			if err := handle.RouteAdd(&route); err != nil {
				t.Errorf("route %d: %v", n, err)
				return
			}
		}
		change(t, handle.AddrAdd, link, "198.51.100.1/24")
		expect(ctx, t, room, "192.0.2.7", "198.51.100.1")
	})
}

func linkIndex(t *testing.T, handle *netlink.Handle) int {
	link, err := handle.LinkByName("reeve0")
	if err != nil {
		t.Error(err)
		return 0
	}
	return link.Attrs().Index
}
