package netns

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	handles "github.com/vishvananda/netns"
)

const (
	// inside is what a node calls its interface.
	inside = "eth0"
	// hostNumber is that of the host in the subnet. Nodes have lower ones.
	hostNumber = 254
	// names is how many characters of a directory's hash are in the names of what is its: names of interfaces end at 15.
	names = 6
)

// Network is the network of a dev directory.
type Network struct {
	// Owner is the path of the dev directory, by which everything is named.
	Owner string
	// Subnet is a /24.
	Subnet netip.Prefix
}

// TakenError says that something else of this host has the subnet of a network.
type TakenError struct {
	Network Network
	// By says what has it.
	By string
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("the subnet %s of %s is taken by %s", e.Network.Subnet, e.Network.Owner, e.By)
}

// NameError says that an interface of this host has the name of a network's bridge, and is not that.
type NameError struct {
	Network Network
	// Alias is the interface's; it may be empty.
	Alias string
}

// Error implements error.
func (e *NameError) Error() string {
	return fmt.Sprintf("the bridge of %s would be called %s, as another interface is (its alias is %q)", e.Network.Owner, e.Network.Bridge(), e.Alias)
}

func (n Network) sum() string {
	sum := sha256.Sum256([]byte(n.Owner))
	return hex.EncodeToString(sum[:])
}

func (n Network) short() string { return n.sum()[:names] }

// alias is that of the bridge. A path may be longer than the 255 bytes that the kernel takes.
func (n Network) alias() string { return "reeve dev " + n.sum() }

// owns says whether an interface with the name of the bridge is it. Whoever made it may have been killed before it had its alias, and its hardware address it has from
// the beginning.
func (n Network) owns(link netlink.Link) bool {
	attributes := link.Attrs()
	return attributes.Alias == n.alias() || attributes.Alias == "" && bytes.Equal(attributes.HardwareAddr, n.hardware(hostNumber))
}

// Namespace is the name of a node's namespace.
func (n Network) Namespace(number int) string {
	return "reeve-" + n.short() + "-" + strconv.Itoa(number)
}

// Bridge is the name of the host's interface that connects the nodes with each other and with the host.
func (n Network) Bridge() string { return "rv" + n.short() }

// port is the name of the host's end of a node's interface.
func (n Network) port(number int) string { return n.Bridge() + "n" + strconv.Itoa(number) }

// Address is that which a node is given.
func (n Network) Address(number int) netip.Addr {
	bytes := n.Subnet.Masked().Addr().As4()
	bytes[3] = byte(number)
	return netip.AddrFrom4(bytes)
}

// hardware is the address of an interface in the Ethernet of the bridge: always the same, so that nobody has an old one in its memory when a node comes again.
func (n Network) hardware(number int) net.HardwareAddr {
	sum := sha256.Sum256([]byte(n.Owner))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], byte(number)}
}

func (n Network) prefix(number int) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: n.Address(number).AsSlice(), Mask: net.CIDRMask(n.Subnet.Bits(), 32)}}
}

// Add makes the namespace of a node, and the bridge if it is not there. What there is of it already stays as it is: an address, too, that was changed since. If it fails,
// a namespace that was not there before is not there afterwards. The error may be a *TakenError or a *NameError.
func (n Network) Add(number int) error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	bridge, err := n.bridge()
	if err != nil {
		return err
	}
	name := n.Namespace(number)
	namespace, err := open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return n.admit(bridge, number, namespace, err)
	}
	if err := add(name); err != nil {
		return errors.Join(err, n.dropBridge(bridge))
	}
	namespace, err = open(name)
	if err = n.admit(bridge, number, namespace, err); err != nil {
		return errors.Join(err, n.takeAway(number))
	}
	return nil
}

// Has says whether the namespace of a node is there.
func (n Network) Has(number int) bool {
	namespace, err := open(n.Namespace(number))
	if err == nil {
		_ = namespace.Close()
	}
	return err == nil
}

// admit connects a namespace that was opened, or could not be, with the bridge, and closes it.
func (n Network) admit(bridge netlink.Link, number int, namespace *os.File, err error) error {
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }()
	if err := n.connect(bridge, number, handles.NsHandle(namespace.Fd())); err != nil {
		return fmt.Errorf("connect the network namespace %s with the bridge %s: %w", n.Namespace(number), n.Bridge(), err)
	}
	return nil
}

// connect gives a namespace its interface, whose other end is a port of the bridge.
func (n Network) connect(bridge netlink.Link, number int, namespace handles.NsHandle) error {
	within, err := netlink.NewHandleAt(namespace)
	if err != nil {
		return err
	}
	defer within.Close()
	link, err := n.ends(bridge, number, namespace, within)
	if err != nil {
		return err
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return within.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		if err := within.AddrAdd(link, n.prefix(number)); err != nil {
			return err
		}
	}
	loopback, err := within.LinkByName("lo")
	if err != nil {
		return err
	}
	return errors.Join(within.LinkSetUp(loopback), within.LinkSetUp(link))
}

// ends returns a namespace's interface, with its other end connected and up. It makes the pair if either is missing.
func (n Network) ends(bridge netlink.Link, number int, namespace handles.NsHandle, within *netlink.Handle) (netlink.Link, error) {
	link, err := within.LinkByName(inside)
	if err != nil && !notFound(err) {
		return nil, err
	}
	port, problem := netlink.LinkByName(n.port(number))
	switch {
	case problem != nil && !notFound(problem):
		return nil, problem
	case err == nil && problem == nil:
		if port.Attrs().MasterIndex != bridge.Attrs().Index {
			if err := netlink.LinkSetMasterByIndex(port, bridge.Attrs().Index); err != nil {
				return nil, err
			}
		}
		return link, netlink.LinkSetUp(port)
	case err == nil:
		// Something else than one end of the pair, or one whose other end has another name.
		if err := within.LinkDel(link); err != nil {
			return nil, err
		}
	}
	if err := removeLink(n.port(number)); err != nil {
		return nil, err
	}
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: n.port(number), MasterIndex: bridge.Attrs().Index},
		PeerName:  inside, PeerHardwareAddr: n.hardware(number), PeerNamespace: netlink.NsFd(namespace),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(pair); err != nil {
		return nil, err
	}
	return within.LinkByName(inside)
}

// bridge returns the host's interface, which it makes if it is not there, and completes if it was only begun.
func (n Network) bridge() (netlink.Link, error) {
	link, err := netlink.LinkByName(n.Bridge())
	if notFound(err) {
		return n.makeBridge()
	}
	if err != nil {
		return nil, fmt.Errorf("the bridge %s: %w", n.Bridge(), err)
	}
	if !n.owns(link) {
		return nil, &NameError{Network: n, Alias: link.Attrs().Alias}
	}
	addresses, err := addressesOf(link)
	if err != nil {
		return nil, fmt.Errorf("the addresses of the bridge %s: %w", n.Bridge(), err)
	}
	if len(addresses) == 0 {
		if err := n.free(); err != nil {
			return nil, err
		}
	}
	return link, n.raise(link, len(addresses) == 0)
}

func (n Network) makeBridge() (netlink.Link, error) {
	if err := n.free(); err != nil {
		return nil, err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.Bridge(), HardwareAddr: n.hardware(hostNumber)}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("make the bridge %s: %w", n.Bridge(), err)
	}
	if err := n.raise(bridge, true); err != nil {
		return nil, errors.Join(err, netlink.LinkDel(bridge))
	}
	return bridge, nil
}

// free fails with a *TakenError if something of this host has the subnet.
func (n Network) free() error {
	by, err := takenBy(n.Subnet)
	if err == nil && by != "" {
		err = &TakenError{Network: n, By: by}
	}
	return err
}

// raise completes the bridge; bare says that it has no address.
func (n Network) raise(bridge netlink.Link, bare bool) error {
	var err error
	if bridge.Attrs().Alias == "" {
		err = netlink.LinkSetAlias(bridge, n.alias())
	}
	if err == nil && bare {
		err = netlink.AddrAdd(bridge, n.prefix(hostNumber))
	}
	if err == nil {
		err = netlink.LinkSetUp(bridge)
	}
	if err != nil {
		return fmt.Errorf("give the bridge %s its alias and its address: %w", n.Bridge(), err)
	}
	return nil
}

// Remove removes the namespace of a node, and the bridge with the last of them. It is no error if there is nothing.
func (n Network) Remove(number int) error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	return n.takeAway(number)
}

// takeAway does so with the lock held.
func (n Network) takeAway(number int) error {
	link, err := netlink.LinkByName(n.Bridge())
	if err != nil && !notFound(err) {
		return fmt.Errorf("the bridge %s: %w", n.Bridge(), err)
	}
	if err == nil && !n.owns(link) {
		return nil // another one's, with which this network cannot have been there
	}
	// Both ends go, whoever is in the namespace.
	if err := errors.Join(removeLink(n.port(number)), remove(n.Namespace(number))); err != nil {
		return err
	}
	if link == nil {
		return nil
	}
	return n.dropBridge(link)
}

// dropBridge removes the bridge if no node is connected with it.
func (n Network) dropBridge(bridge netlink.Link) error {
	links, err := whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("the interfaces of this host: %w", err)
	}
	for _, port := range links {
		if port.Attrs().MasterIndex == bridge.Attrs().Index {
			return nil
		}
	}
	if err := netlink.LinkDel(bridge); err != nil && !notFound(err) {
		return fmt.Errorf("remove the bridge %s: %w", n.Bridge(), err)
	}
	return nil
}

// Current is the address that a node has: the one that it is given, unless it was changed since in its namespace.
func (n Network) Current(number int) netip.Addr {
	namespace, err := open(n.Namespace(number))
	if err != nil {
		return n.Address(number)
	}
	defer func() { _ = namespace.Close() }()
	within, err := netlink.NewHandleAt(handles.NsHandle(namespace.Fd()))
	if err != nil {
		return n.Address(number)
	}
	defer within.Close()
	link, err := within.LinkByName(inside)
	if err != nil {
		return n.Address(number)
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return within.AddrList(link, netlink.FAMILY_V4) })
	if err != nil || len(addresses) == 0 {
		return n.Address(number)
	}
	current, _ := netip.AddrFromSlice(addresses[0].IP.To4())
	return current
}

func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !notFound(err) {
		return fmt.Errorf("remove the interface %s: %w", name, err)
	}
	return nil
}

// whole is what the kernel lists. A list during which something has changed, of whomever, is got again: what is in it need not be so.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range lists {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// lists is how often a list is got before it is an error that it changes every time.
const lists = 100

// addressesOf are the addresses of an interface of this host; nil: of all of them.
func addressesOf(link netlink.Link) ([]netlink.Addr, error) {
	return whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V4) })
}

func notFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}
