package podnet_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	handles "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

const patience = 2 * time.Minute

// namespace is a network namespace: a machine, or a pod. Nothing of it is left when the test ends.
type namespace struct {
	name string
	file *os.File
}

// newNamespace makes one with a loopback interface that is up. It skips the test where none can be made.
func newNamespace(t *testing.T, name string) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: needs root, since network namespaces are made")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("not run: needs nft, of the package nftables")
	}
	n := &namespace{name: name}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if errors.Is(err, unix.EPERM) {
		t.Skip("not run: needs CAP_SYS_ADMIN, since network namespaces are made")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.file.Close() })
	n.must(t, func() error {
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(loopback)
	})
	return n
}

// onThread calls do on a thread of its own, which ends with it: whatever namespace it is in by then.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- do()
	}()
	return <-done
}

// do calls a function in the namespace, as do the processes that it starts.
func (n *namespace) do(call func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := call(); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		return nil
	})
}

func (n *namespace) must(t *testing.T, call func() error) {
	t.Helper()
	if err := n.do(call); err != nil {
		t.Fatal(err)
	}
}

// path is by which another process reaches the namespace.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// run runs a program in the namespace.
func (n *namespace) run(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	var output []byte
	n.must(t, func() (err error) {
		if output, err = exec.Command(name, arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %v: %w: %s", name, arguments, err, output)
		}
		return nil
	})
	return string(output)
}

func (n *namespace) sysctl(t *testing.T, name, value string) {
	t.Helper()
	n.must(t, func() error { return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0) })
}

// connect connects two namespaces by a pair of interfaces.
func connect(t *testing.T, a *namespace, nameA string, b *namespace, nameB string) {
	t.Helper()
	a.must(t, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(handles.NsHandle(b.file.Fd()))}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		return raise(nameA)
	})
	b.must(t, func() error { return raise(nameB) })
}

// raise takes an interface up, without an address of its own choice: when it would have one is nobody's to say.
func raise(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetIP6AddrGenMode(link, 1), netlink.LinkSetUp(link))
}

// give gives an interface addresses.
func (n *namespace) give(t *testing.T, name string, addresses ...string) {
	t.Helper()
	n.must(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addresses {
			address, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			if address.IP.To4() == nil {
				address.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, address); err != nil {
				return err
			}
		}
		return nil
	})
}

// route adds a route, by an address or, without one, by the interface alone.
func (n *namespace) route(t *testing.T, to, by, name string) {
	t.Helper()
	n.must(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		_, destination, err := net.ParseCIDR(to)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: destination}
		if by != "" {
			route.Gw = net.ParseIP(by)
		} else if destination.IP.To4() != nil {
			route.Scope = netlink.SCOPE_LINK
		}
		return netlink.RouteAdd(route)
	})
}

// serve has the namespace tell everybody who comes to an address from where they have come, and then repeat what they say.
func (n *namespace) serve(t *testing.T, address string) string {
	t.Helper()
	return n.serveAt(t, net.JoinHostPort(address, "0"))
}

func (n *namespace) serveAt(t *testing.T, address string) string {
	t.Helper()
	var listener net.Listener
	n.must(t, func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	ended := make(chan struct{})
	var connections []net.Conn
	go func() {
		defer close(ended)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections = append(connections, connection)
			go func() {
				defer func() { _ = connection.Close() }()
				host, _, _ := net.SplitHostPort(connection.RemoteAddr().String())
				_, _ = io.WriteString(connection, host+"\n")
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
		for _, connection := range connections {
			_ = connection.Close()
		}
	})
	return listener.Addr().String()
}

// conversation is a connection with what serve serves.
type conversation struct {
	net.Conn
	// seen is the address from which the client has come.
	seen string
}

func (n *namespace) talk(server string) (*conversation, error) {
	c := &conversation{}
	err := n.do(func() (err error) {
		c.Conn, err = net.DialTimeout("tcp", server, patience)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.seen, err = c.line()
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (c *conversation) line() (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	var line []byte
	for one := make([]byte, 1); ; line = append(line, one[0]) {
		if _, err := io.ReadFull(c, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
	}
}

// say has a text come back.
func (c *conversation) say(text string) error {
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return err
	}
	back, err := c.line()
	if err == nil && back != text {
		err = fmt.Errorf("%q came back as %q", text, back)
	}
	return err
}

// reaches has the namespace reach a server, and be seen there with an address.
func (n *namespace) reaches(t *testing.T, server, seen string) {
	t.Helper()
	c, err := n.talk(server)
	if err != nil {
		t.Errorf("%s does not reach %s: %v", n.name, server, err)
		return
	}
	defer func() { _ = c.Close() }()
	if c.seen != seen {
		t.Errorf("%s is %s at %s, and should be %s", n.name, c.seen, server, seen)
	}
	// More than one packet can carry.
	if err := c.say(strings.Repeat("all of it ", 10_000)); err != nil {
		t.Errorf("%s and %s: %v", n.name, server, err)
	}
}

// cannotReach has the namespace be told that an address cannot be reached.
func (n *namespace) cannotReach(t *testing.T, address string) {
	t.Helper()
	c, err := n.talk(net.JoinHostPort(address, "80"))
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("%s reaches for %s: %v", n.name, address, err)
	}
}

// state is everything of a namespace's network that somebody can have set.
func (n *namespace) state(t *testing.T) []string {
	t.Helper()
	var all []string
	n.must(t, func() error {
		links, err := whole(netlink.LinkList)
		if err != nil {
			return err
		}
		names := make(map[int]string)
		for _, link := range links {
			a := link.Attrs()
			names[a.Index] = a.Name
			// The kernel reports RUNNING with a delay.
			all = append(all, fmt.Sprintf("link %d %s %s mtu %d %s %q", a.Index, a.Name, link.Type(), a.MTU, a.Flags&^net.FlagRunning, a.Alias))
			addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
			if err != nil {
				return err
			}
			for _, address := range addresses {
				all = append(all, fmt.Sprintf("address %s %s", a.Name, address.IPNet))
			}
			for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6, unix.AF_BRIDGE} {
				entries, err := whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(a.Index, family) })
				if err != nil {
					return err
				}
				for _, e := range entries {
					if e.State == netlink.NUD_PERMANENT && e.IP != nil {
						all = append(all, fmt.Sprintf("neighbour %s %s %s", a.Name, e.IP, e.HardwareAddr))
					}
				}
			}
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := whole(func() ([]netlink.Route, error) {
				return netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
			})
			if err != nil {
				return err
			}
			for _, r := range routes {
				if r.Table == unix.RT_TABLE_LOCAL && r.Protocol == unix.RTPROT_KERNEL {
					continue // they follow from the addresses, in the kernel's own time
				}
				all = append(all, fmt.Sprintf("route %s via %s dev %s table %d type %d protocol %d priority %d", r.Dst, r.Gw, names[r.LinkIndex], r.Table, r.Type, r.Protocol, r.Priority))
			}
			rules, err := whole(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
			if err != nil {
				return err
			}
			for _, r := range rules {
				all = append(all, fmt.Sprint("rule ", family, r.Priority, r.Table))
			}
		}
		return nil
	})
	slices.Sort(all)
	return append(all, strings.Split(n.run(t, "nft", "list", "ruleset"), "\n")...)
}

// whole lists objects of the kernel, and lists them again if they changed meanwhile: such a list may be wrong.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range 100 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// differences are those between two states.
func differences(before, after []string) string {
	var out []string
	for _, line := range before {
		if !slices.Contains(after, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

func host(address netip.Addr) string { return netip.PrefixFrom(address, address.BitLen()).String() }
