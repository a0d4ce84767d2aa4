package netns

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wide is the longest prefix of a route that takes nothing: one as wide as all private addresses leads out of the machine, and one to a single subnet goes before it.
const wide = 8

// Choose returns a network for a dev directory, whose bridge it makes: the subnet depends on the directory, and is another one when that is taken. The
// error may be a *NameError.
func Choose(owner string) (Network, error) {
	unlock, err := lock()
	if err != nil {
		return Network{}, err
	}
	defer unlock()
	if begun, ok := begun(owner); ok {
		return begun, nil
	}
	sum := sha256.Sum256([]byte(owner))
	first := binary.BigEndian.Uint16(sum[:])
	for n := range uint16(1 << 15) {
		number := first + n
		network := Network{Owner: owner, Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(number >> 8), byte(number), 0}), 24)}
		var taken *TakenError
		if _, err = network.bridge(); !errors.As(err, &taken) {
			return network, err
		}
	}
	return Network{}, fmt.Errorf("every subnet of 10.0.0.0/8 is taken on this host; the last one tried: %w", err)
}

// begun is the network whose bridge is there already, of an earlier try.
func begun(owner string) (Network, bool) {
	network := Network{Owner: owner}
	link, err := netlink.LinkByName(network.Bridge())
	if err != nil || !network.owns(link) {
		return Network{}, false
	}
	addresses, err := addressesOf(link)
	if err != nil || len(addresses) == 0 {
		return Network{}, false
	}
	address, ok := netip.AddrFromSlice(addresses[0].IP.To4())
	network.Subnet = netip.PrefixFrom(address, 24).Masked()
	return network, ok
}

// takenBy says what of this host is in a subnet; empty: nothing.
func takenBy(subnet netip.Prefix) (string, error) {
	addresses, err := addressesOf(nil)
	if err != nil {
		return "", fmt.Errorf("the addresses of this host: %w", err)
	}
	for _, address := range addresses {
		if address.IPNet != nil && within(subnet, address.IP) {
			return "the address " + address.IPNet.String() + " of " + linkName(address.LinkIndex), nil
		}
	}
	// Those of every table, whatever rules lead to it.
	routes, err := whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return "", fmt.Errorf("the routes of this host: %w", err)
	}
	for _, route := range routes {
		if overlaps(subnet, route.Dst) {
			return "the route to " + route.Dst.String() + " by " + linkName(route.LinkIndex), nil
		}
		for _, gateway := range gateways(route) {
			if within(subnet, gateway) {
				return "the gateway " + gateway.String() + " of " + linkName(route.LinkIndex), nil
			}
		}
	}
	return "", nil
}

// gateways are the machines to which a route leads.
func gateways(route netlink.Route) []net.IP {
	found := []net.IP{route.Gw}
	for _, hop := range route.MultiPath {
		found = append(found, hop.Gw)
	}
	return found
}

func within(subnet netip.Prefix, ip net.IP) bool {
	address, ok := netip.AddrFromSlice(ip.To4())
	return ok && subnet.Contains(address)
}

// overlaps says whether a route is to addresses of the subnet.
func overlaps(subnet netip.Prefix, to *net.IPNet) bool {
	if to == nil {
		return false
	}
	address, ok := netip.AddrFromSlice(to.IP.To4())
	bits, _ := to.Mask.Size()
	return ok && bits > wide && netip.PrefixFrom(address, bits).Overlaps(subnet)
}

func linkName(index int) string {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return link.Attrs().Name
}
