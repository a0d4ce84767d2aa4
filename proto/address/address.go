// Package address chooses, of all addresses of a machine, those by which other nodes reach it, and says why the others are none. The core publishes what is chosen; `reeve init` and
// `reeve doctor` show it, so both go by the same rules. It owns nothing and watches nothing.
package address

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Address is an address of an interface.
type Address struct {
	netip.Prefix
	// Interface is the name of the interface.
	Interface string
	// Reason says why the address is not chosen; empty: it is.
	Reason string
	// Choice says that others might reach the machine by it just as well: an operator may want to name it.
	Choice bool
}

// Facts are what the kernel says of a machine.
type Facts struct {
	Links     []Link
	Addresses []Held
	Defaults  []Default
}

// Link is an interface.
type Link struct {
	// Index is its number, and Master that of the interface of which it is a port; 0: of none.
	Index, Master int
	Name          string
	// Kind is "bridge", "veth" and so on, as `ip -d link` says it; empty: a device of the machine.
	Kind string
	// Loopback is lo. Up says that it is switched on, Carrier that there is something at its other end.
	Loopback, Up, Carrier bool
}

// Held is an address with its place.
type Held struct {
	Prefix netip.Prefix
	Link   int
	// Secondary is one that follows another one of the same network.
	Secondary bool
	// Passing says why it is of no use to others for long, "deprecated" say; empty: it is.
	Passing string
}

// Default is a default route.
type Default struct {
	Link   int
	Metric uint32
}

// Here chooses among the addresses of this machine, or of the network namespace of the calling thread: first those that are chosen, the preferred one first, then the
// others, each with the reason. named is the parameter network.interfaces: names of interfaces and networks.
func Here(named []string) ([]Address, error) {
	facts, err := read()
	if err != nil {
		return nil, err
	}
	return Choose(facts, named), nil
}

// Chosen is the addresses of a list that are chosen, as text.
func Chosen(list []Address) []string {
	var chosen []string
	for _, a := range list {
		if text := a.Addr().String(); a.Reason == "" && !slices.Contains(chosen, text) {
			chosen = append(chosen, text)
		}
	}
	return chosen
}

// Choose chooses by the facts, as Here does. The order does not depend on that of the facts: others remember addresses.
func Choose(facts Facts, named []string) []Address {
	c := chooser{named: named, links: make(map[int]Link), metrics: make(map[int]uint32), overlay: make(map[netip.Addr]string), devices: make(map[int]bool)}
	c.learn(facts)
	held := slices.Clone(facts.Addresses)
	slices.SortFunc(held, c.compare)
	rank := unranked
	for _, h := range held {
		if c.unusable(h) == "" {
			rank = min(rank, c.rank(h))
		}
	}
	var chosen, others []Address
	for _, h := range held {
		a := Address{Prefix: h.Prefix, Interface: c.links[h.Link].Name, Reason: c.unusable(h)}
		if a.Reason == "" && c.rank(h) != rank {
			a.Reason, a.Choice = c.worse(h), c.devices[h.Link]
		}
		a.Choice = a.Choice || a.Reason == "" || a.Reason == c.tunnel(h)
		if a.Reason == "" {
			chosen = append(chosen, a)
		} else {
			others = append(others, a)
		}
	}
	return append(chosen, others...)
}

// onlyItself is why a loopback address is not chosen.
const onlyItself = "only this machine reaches it"

// ReachesItself reports whether the machine reaches itself, by the list of its addresses. What runs on it reaches nothing else there either if not: the kernel delivers what a machine sends itself by
// the loopback interface.
func ReachesItself(list []Address) bool {
	return slices.ContainsFunc(list, func(a Address) bool { return a.Reason == onlyItself })
}

// chooser is the facts as the rules need them.
type chooser struct {
	named []string
	links map[int]Link
	// metrics are those of the interfaces by which a default route leaves.
	metrics map[int]uint32
	// overlay is the addresses that an interface of an overlay has, and its kind. Others may have them as well: that of the pods of Kubernetes gives its own to the link of each pod.
	overlay map[netip.Addr]string
	// devices are the interfaces that are devices of the machine, and bridges of such.
	devices map[int]bool
}

// tunnels are the kinds of interfaces that lead to other machines by way of another interface.
var tunnels = []string{"tun", "wireguard", "vxlan", "geneve", "bareudp", "ipip", "sit", "gre", "gretap", "erspan", "ip6tnl", "ip6gre", "ip6gretap", "ip6erspan", "vti", "vti6", "xfrm", "l2tp"}

// overlays are those whose addresses are not the machine's even where another interface has them, too.
var overlays = []string{"vxlan", "geneve"}

// inner are the kinds that lead to what runs on the machine itself.
var inner = []string{"bridge", "openvswitch", "veth", "netkit", "dummy", "ifb", "nlmon", "vrf"}

func (c *chooser) learn(facts Facts) {
	for _, link := range facts.Links {
		c.links[link.Index] = link
		c.devices[link.Index] = !link.Loopback && !slices.Contains(tunnels, link.Kind) && !slices.Contains(inner, link.Kind)
	}
	for _, link := range facts.Links {
		if c.devices[link.Index] && link.Master != 0 {
			c.devices[link.Master] = true
		}
	}
	for _, route := range facts.Defaults {
		if metric, ok := c.metrics[route.Link]; !ok || route.Metric < metric {
			c.metrics[route.Link] = route.Metric
		}
	}
	for _, h := range facts.Addresses {
		if kind := c.links[h.Link].Kind; slices.Contains(overlays, kind) {
			c.overlay[h.Prefix.Addr()] = kind
		}
	}
}

// isNamed reports whether the parameters name the address, by its interface or by a network.
func (c *chooser) isNamed(h Held) bool {
	return slices.ContainsFunc(c.named, func(name string) bool {
		network, err := netip.ParsePrefix(name)
		return name == c.links[h.Link].Name || err == nil && network.Contains(h.Prefix.Addr())
	})
}

// unusable says why an address is none by which others could reach the machine; empty: it may be one.
func (c *chooser) unusable(h Held) string {
	address, link := h.Prefix.Addr(), c.links[h.Link]
	switch {
	case address.IsLoopback() && link.Up:
		return onlyItself
	case address.IsLoopback():
		return "its interface is down"
	case address.IsLinkLocalUnicast():
		return "it is link-local"
	case !address.IsGlobalUnicast():
		return "it is a multicast or broadcast address"
	case h.Passing != "":
		return "it is " + h.Passing
	case len(c.named) > 0 && !c.isNamed(h):
		return "network.interfaces names neither it nor its interface"
	case len(c.named) == 0 && c.overlay[address] != "":
		return "it is one of an overlay network (" + c.overlay[address] + ")"
	case !link.Up:
		return "its interface is down"
	case !link.Carrier:
		return "its interface has no carrier"
	case c.tunnel(h) != "":
		return c.tunnel(h)
	case len(c.named) == 0 && link.Loopback:
		return "it is on the loopback interface"
	case len(c.named) == 0 && c.rank(h) == insideRank && c.hasDevice():
		return c.worse(h)
	}
	return ""
}

// tunnel says that an address is that of a tunnel, which nobody has named; empty: it is not.
func (c *chooser) tunnel(h Held) string {
	if kind := c.links[h.Link].Kind; len(c.named) == 0 && slices.Contains(tunnels, kind) {
		return "its interface is a tunnel (" + kind + ")"
	}
	return ""
}

// The ranks of addresses that may be chosen. Only those of the best rank that there is are.
const (
	routeRank  = iota // named, or a default route leaves by its interface
	deviceRank        // of a device of the machine
	insideRank        // of a bridge, say
	unranked
)

func (c *chooser) rank(h Held) int {
	_, routes := c.metrics[h.Link]
	switch {
	case len(c.named) > 0 || routes:
		return routeRank
	case c.devices[h.Link]:
		return deviceRank
	}
	return insideRank
}

// hasDevice reports whether the machine has a device that may get an address, also while that is switched off: bridges of containers, which have the same address on each machine, are not taken in its place. The
// data path of Open vSwitch, which has the machine's devices as ports, is never switched on and gets none.
func (c *chooser) hasDevice() bool {
	for index, link := range c.links {
		if c.devices[index] && link.Master == 0 && link.Kind != "openvswitch" {
			return true
		}
	}
	return false
}

// worse says why an address is not chosen that others could reach.
func (c *chooser) worse(h Held) string {
	if link := c.links[h.Link]; !c.devices[h.Link] {
		return fmt.Sprintf("its interface is a %s, by which no default route leaves", link.Kind)
	}
	return "no default route leaves by its interface"
}

// compare puts first what most likely works for all: IPv4; an address with a network of its own before one that is a single one or follows another, as virtual addresses are which move
// from machine to machine; the better default route; the older interface.
func (c *chooser) compare(a, b Held) int {
	metric := func(h Held) uint64 {
		if metric, ok := c.metrics[h.Link]; ok {
			return uint64(metric)
		}
		return 1 << 32
	}
	return cmp.Or(
		before(a.Prefix.Addr().Is4(), b.Prefix.Addr().Is4()),
		before(!a.single(), !b.single()),
		cmp.Compare(metric(a), metric(b)),
		cmp.Compare(a.Link, b.Link),
		a.Prefix.Addr().Compare(b.Prefix.Addr()),
	)
}

func (h Held) single() bool { return h.Secondary || h.Prefix.IsSingleIP() }

func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
