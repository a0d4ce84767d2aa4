package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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

// Run watches until the context ends. It returns nil: whatever the kernel refuses or drops, it looks again.
func (r *Room) Run(ctx context.Context) error {
	if len(r.config.Addresses) > 0 {
		r.addresses.Set(r.config.Addresses)
		<-ctx.Done()
		return nil
	}
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = settle, 10*time.Second
	waiting := false
	for {
		began := time.Now()
		err := r.watch(ctx, &waiting)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > time.Minute {
			retry.Reset()
		}
		pause := retry.NextBackOff()
		r.config.Log.Debug("the watch of addresses is begun again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// settle is how long the room waits for further changes before it looks: a routing daemon changes thousands of routes at once.
const settle = 100 * time.Millisecond

// watch follows the kernel's addresses and routes until something fails.
func (r *Room) watch(ctx context.Context, waiting *bool) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return fmt.Errorf("network: watch addresses and routes: %w", err)
	}
	changes, failed := make(chan struct{}, 1), make(chan error, 1)
	var receiving sync.WaitGroup
	receiving.Go(func() { failed <- receive(socket, changes) })
	defer receiving.Wait()
	defer socket.Close()
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return fmt.Errorf("network: the kernel's watch ended: %w", err)
		case <-changes:
			look.Reset(settle)
		case <-look.C:
			switch err := r.look(waiting); {
			case errors.Is(err, netlink.ErrDumpInterrupted):
				look.Reset(settle)
			case err != nil:
				return err
			}
		}
	}
}

// receive tells of changes until the socket fails or is closed. What they are is looked up later, so a burst of routes that overflows the socket's buffer is one
// more change.
func receive(socket *nl.NetlinkSocket, changes chan<- struct{}) error {
	for {
		if _, _, err := socket.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	}
}

// look publishes the addresses if they have changed.
func (r *Room) look(waiting *bool) error {
	list, err := r.list()
	if err != nil {
		return err
	}
	current, _ := r.addresses.Get()
	switch {
	case len(list) == 0 && !*waiting:
		*waiting = true
		r.config.Log.Warn("the node has no address yet; waiting for one (or name one as network.addresses in the parameters)")
	case len(list) > 0 && !slices.Equal(list, current):
		*waiting = false
		r.config.Log.Info("addresses", "addresses", list)
		r.addresses.Set(list)
	}
	return nil
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
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("network: list interfaces: %w", err)
	}
	inOverlay := overlay(links, addresses)
	var candidates []candidate
	for _, a := range addresses {
		address, ok := netip.AddrFromSlice(a.IP)
		if !ok || inOverlay[address.Unmap()] || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_DEPRECATED|unix.IFA_F_TEMPORARY) != 0 {
			continue
		}
		candidates = append(candidates, candidate{address: address.Unmap(), link: a.LinkIndex, toWorld: toWorld[a.LinkIndex]})
	}
	return preferred(candidates), nil
}

// overlay is the addresses that an interface of an overlay (VXLAN) has, wherever else they are: an overlay is made of the addresses by which nodes reach each other, and is none of them. That of the pods of
// Kubernetes gives its address to the link of every pod too.
func overlay(links []netlink.Link, addresses []netlink.Addr) map[netip.Addr]bool {
	overlays, found := make(map[int]bool), make(map[netip.Addr]bool)
	for _, link := range links {
		if link.Type() == "vxlan" {
			overlays[link.Attrs().Index] = true
		}
	}
	for _, a := range addresses {
		if address, ok := netip.AddrFromSlice(a.IP); ok && overlays[a.LinkIndex] {
			found[address.Unmap()] = true
		}
	}
	return found
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
