package podnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// Overhead of VXLAN: the headers of Ethernet (14), VXLAN (8), UDP (8) and IP.
	overhead4 = 14 + 8 + 8 + 20
	overhead6 = 14 + 8 + 8 + 40
	// usualMTU is that of Ethernet, for a machine whose address is on no interface that leads anywhere.
	usualMTU = 1500
	// leastMTU6 is the least with which IPv6 works at all, and leastMTU4 the same for IPv4.
	leastMTU6, leastMTU4 = 1280, 576
)

// addrGenModeNone has the kernel give an interface no link-local address: nobody would answer it.
const addrGenModeNone = 1

// makeDevice makes the VXLAN interface, or takes the one that is there and puts right what differs.
func (n *Network) makeDevice(context.Context) error {
	mtu, err := n.config.mtu()
	if err != nil {
		return err
	}
	wanted := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: Device, HardwareAddr: hardware(n.config.NodeID), MTU: mtu},
		VxlanId:   vni, Port: Port, SrcAddr: n.config.Address.AsSlice(),
	}
	link, err := netlink.LinkByName(Device)
	if err != nil && !notFound(err) {
		return fmt.Errorf("the interface %s: %w", Device, err)
	}
	if err == nil {
		found, err := own(link, n.config.NodeID)
		if err != nil {
			return err
		}
		if found.VxlanId != vni || found.Port != Port || found.Learning || addressOf(found.SrcAddr) != n.config.Address {
			n.log.Info("the interface of the pod network is made anew, since the node's address has changed", "interface", Device, "was", found.SrcAddr, "is", n.config.Address)
			if err := netlink.LinkDel(link); err != nil && !notFound(err) {
				return fmt.Errorf("remove the interface %s: %w", Device, err)
			}
			link = nil
		}
	}
	if link == nil {
		if err := netlink.LinkAdd(wanted); err != nil {
			return fmt.Errorf("make the VXLAN interface %s (the kernel needs the module vxlan): %w", Device, err)
		}
		if link, err = netlink.LinkByName(Device); err != nil {
			return fmt.Errorf("the interface %s: %w", Device, err)
		}
	}
	return n.raise(link, mtu)
}

// own returns the interface if it is the node's. It is known by its hardware address, which it has from the moment that it is made.
func own(link netlink.Link, nodeID string) (*netlink.Vxlan, error) {
	vxlan, ok := link.(*netlink.Vxlan)
	if !ok || !bytes.Equal(vxlan.HardwareAddr, hardware(nodeID)) {
		return nil, &TakenError{Name: link.Attrs().Name, Alias: link.Attrs().Alias}
	}
	return vxlan, nil
}

// raise gives the interface everything that can be changed while it is there.
func (n *Network) raise(link netlink.Link, mtu int) error {
	attributes := link.Attrs()
	if said := alias + n.config.NodeID; attributes.Alias != said {
		if err := netlink.LinkSetAlias(link, said); err != nil {
			return fmt.Errorf("the alias of the interface %s: %w", Device, err)
		}
	}
	if attributes.MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set the MTU of the interface %s to %d: %w", Device, mtu, err)
		}
	}
	if hasIPv6() {
		if err := netlink.LinkSetIP6AddrGenMode(link, addrGenModeNone); err != nil {
			return fmt.Errorf("keep the interface %s from having a link-local address: %w", Device, err)
		}
	}
	if err := netlink.LinkSetUp(link); errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("the UDP port %d is another program's, and VXLAN needs it: find it by `ss -ulnp sport = :%d`, and stop it", Port, Port)
	} else if err != nil {
		return fmt.Errorf("take the interface %s up: %w", Device, err)
	}
	return n.setAddresses(link)
}

// setAddresses gives the interface the first address of each range of the node's pods, and no other: it is what other nodes' pods see of this node, in what it sends itself and in what it masquerades.
func (n *Network) setAddresses(link netlink.Link) error {
	var wanted []netip.Addr
	for _, pods := range n.config.Pods {
		wanted = append(wanted, gateway(pods))
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("the addresses of the interface %s: %w", Device, err)
	}
	var there []netip.Addr
	for _, found := range addresses {
		prefix := prefixOf(found.IPNet)
		if prefix.IsSingleIP() && slices.Contains(wanted, prefix.Addr()) {
			there = append(there, prefix.Addr())
		} else if err := netlink.AddrDel(link, &found); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove the address %s from the interface %s: %w", prefix, Device, err)
		}
	}
	for _, address := range wanted {
		if slices.Contains(there, address) {
			continue
		}
		add := &netlink.Addr{IPNet: network(netip.PrefixFrom(address, address.BitLen()))}
		if address.Is6() {
			add.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, add); err != nil {
			return fmt.Errorf("give the interface %s the address %s: %w", Device, address, err)
		}
	}
	return nil
}

// mtu is what pods may send at once, so that it fits through the tunnel.
func (c *Config) mtu() (int, error) {
	link, err := underlay(c.Address)
	if err != nil {
		return 0, err
	}
	overhead := overhead4
	if c.Address.Is6() {
		overhead = overhead6
	}
	carried := link.Attrs().MTU - overhead
	if link.Attrs().Flags&net.FlagLoopback != 0 {
		carried = usualMTU - overhead
	}
	mtu := c.MTU
	if mtu == 0 {
		mtu = carried
	}
	least := leastMTU4
	if slices.ContainsFunc(c.Pods, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		least = leastMTU6
	}
	if mtu > carried || mtu < least {
		return 0, fmt.Errorf("pods would have an MTU of %d: the interface %s (MTU %d) leaves them %d, and they need %d", mtu, link.Attrs().Name, link.Attrs().MTU, carried, least)
	}
	return mtu, nil
}

// underlay is the interface of this machine that has an address.
func underlay(address netip.Addr) (netlink.Link, error) {
	addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family(address)) })
	if err != nil {
		return nil, fmt.Errorf("the addresses of this machine: %w", err)
	}
	for _, found := range addresses {
		if prefixOf(found.IPNet).Addr() != address {
			continue
		}
		link, err := netlink.LinkByIndex(found.LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("the interface with the address %s: %w", address, err)
		}
		return link, nil
	}
	return nil, fmt.Errorf("no interface of this machine has the node's address %s", address)
}

// hasIPv6 reports whether the kernel has IPv6 at all.
func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf/all")
	return err == nil
}
