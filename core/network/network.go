package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what the room needs.
type Config struct {
	Log hclog.Logger
	// Addresses are the node's addresses as the parameters name them; empty: those of its interfaces.
	Addresses []string
}

// Room watches the node's addresses.
type Room struct {
	config    Config
	addresses event.Value[[]string]
}

// New returns the room. It does not watch before Run.
func New(config Config) *Room {
	return &Room{config: config}
}

// Addresses is the addresses of the node, the preferred one first. It holds nothing before there is one.
func (r *Room) Addresses() *event.Value[[]string] { return &r.addresses }

// Run watches until the context ends. It fails only if the kernel cannot be asked.
func (r *Room) Run(ctx context.Context) error {
	if len(r.config.Addresses) > 0 {
		r.addresses.Set(r.config.Addresses)
		<-ctx.Done()
		return nil
	}
	done := make(chan struct{})
	defer close(done)
	// The channels are buffered so that netlink's readers are not stuck on a send when this function has returned.
	addresses := make(chan netlink.AddrUpdate, 64)
	routes := make(chan netlink.RouteUpdate, 64)
	failures := make(chan error, 2)
	failed := func(err error) {
		select {
		case failures <- err:
		default:
		}
	}
	if err := netlink.AddrSubscribeWithOptions(addresses, done, netlink.AddrSubscribeOptions{ErrorCallback: failed}); err != nil {
		return fmt.Errorf("network: watch addresses: %w", err)
	}
	if err := netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ErrorCallback: failed}); err != nil {
		return fmt.Errorf("network: watch routes: %w", err)
	}
	waiting := false
	for {
		list, err := r.list()
		if err != nil {
			return err
		}
		current, _ := r.addresses.Get()
		switch {
		case len(list) == 0 && !waiting:
			waiting = true
			r.config.Log.Warn("the node has no address yet; waiting for one (or name one as network.addresses in the parameters)")
		case len(list) > 0 && !slices.Equal(list, current):
			waiting = false
			r.config.Log.Info("addresses", "addresses", list)
			r.addresses.Set(list)
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-addresses:
			if !ok {
				return errors.New("network: the watch of addresses ended")
			}
		case _, ok := <-routes:
			if !ok {
				return errors.New("network: the watch of routes ended")
			}
		case err := <-failures:
			return fmt.Errorf("network: %w", err)
		}
	}
}

// list asks the kernel for the addresses by which others may reach the node.
func (r *Room) list() ([]string, error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("network: list addresses: %w", err)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("network: list routes: %w", err)
	}
	toWorld := make(map[int]bool)
	for _, route := range routes {
		if route.Dst == nil || route.Dst.IP.IsUnspecified() {
			toWorld[route.LinkIndex] = true
		}
	}
	var candidates []candidate
	for _, a := range addresses {
		address, ok := netip.AddrFromSlice(a.IP)
		if !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_DEPRECATED|unix.IFA_F_TEMPORARY) != 0 {
			continue
		}
		candidates = append(candidates, candidate{address: address.Unmap(), link: a.LinkIndex, toWorld: toWorld[a.LinkIndex]})
	}
	return preferred(candidates), nil
}

// candidate is an address of an interface.
type candidate struct {
	address netip.Addr
	link    int
	// toWorld says that a default route leaves by the address's interface.
	toWorld bool
}

// preferred sorts out the addresses by which no other node can reach this one, and puts first what most likely works for all: an interface with a
// default route, then IPv4, then the older interface. The order is the same at every start, since others remember addresses.
func preferred(candidates []candidate) []string {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool {
		return !c.address.IsGlobalUnicast()
	})
	slices.SortFunc(candidates, func(a, b candidate) int {
		switch {
		case a.toWorld != b.toWorld:
			return before(a.toWorld)
		case a.address.Is4() != b.address.Is4():
			return before(a.address.Is4())
		case a.link != b.link:
			return a.link - b.link
		}
		return a.address.Compare(b.address)
	})
	list := make([]string, 0, len(candidates))
	for _, c := range candidates {
		if address := c.address.String(); !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	return list
}

func before(first bool) int {
	if first {
		return -1
	}
	return 1
}
