package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// protocol is the number by which the kernel says whose a route is: all with it are this package's.
	protocol netlink.RouteProtocol = 0x52
	// lastPriority is that of routes that only count if there is no other to the same range.
	lastPriority = 30000
	// usualPriority6 is what the kernel makes of none in IPv6.
	usualPriority6 = 1024
)

// route is one of ours, as far as it matters.
type route struct {
	to netip.Prefix
	// by is the first address of the peer's range; not valid: the range is unreachable.
	by netip.Addr
	// device is the index of the interface, and 0 if there is none.
	device int
}

func (r route) String() string {
	if !r.by.IsValid() {
		return fmt.Sprintf("unreachable %s", r.to)
	}
	return fmt.Sprintf("%s via %s", r.to, r.by)
}

func (r route) netlink() *netlink.Route {
	out := &netlink.Route{Dst: network(r.to), Protocol: protocol, Table: unix.RT_TABLE_MAIN, Family: family(r.to.Addr())}
	if !r.by.IsValid() {
		out.Type, out.Priority = unix.RTN_UNREACHABLE, lastPriority
		return out
	}
	out.LinkIndex, out.Gw, out.Flags = r.device, r.by.AsSlice(), int(netlink.FLAG_ONLINK)
	if r.to.Addr().Is6() {
		out.Priority = usualPriority6
	}
	return out
}

func routeOf(found netlink.Route) route {
	r := route{to: prefixOf(found.Dst), by: addressOf(found.Gw)}
	if found.Type != unix.RTN_UNREACHABLE {
		r.device = found.LinkIndex
	}
	return r
}

// refuse adds unreachable routes for the pod ranges of this node and of the cluster, so that a packet for a pod that does not exist does not leave by the default route.
// Routes to pods and peers are more specific or have a lower metric.
func (n *Network) refuse(context.Context) error {
	var wanted []route
	all, err := ranges(slices.Concat(n.config.Pods, n.config.Cluster))
	if err != nil {
		return err
	}
	for _, prefix := range all {
		wanted = append(wanted, route{to: prefix})
	}
	return setRoutes(wanted, func(r route) bool { return !r.by.IsValid() })
}

// setRoutes has exactly the wanted routes of those of ours that are in question.
func setRoutes(wanted []route, inQuestion func(route) bool) error {
	there, others, err := routes()
	if err != nil {
		return err
	}
	var problems []error
	for _, r := range wanted {
		if slices.Contains(there, r) {
			continue
		}
		add := r.netlink()
		if i := slices.IndexFunc(others, func(o netlink.Route) bool { return prefixOf(o.Dst) == r.to && o.Priority == add.Priority }); i >= 0 {
			problems = append(problems, fmt.Errorf("the route to %s is not Reeve's (its protocol is %s): remove it", r.to, others[i].Protocol))
			continue
		}
		if err := netlink.RouteReplace(add); err != nil {
			problems = append(problems, fmt.Errorf("set the route %s: %w", r, err))
		}
	}
	for _, r := range there {
		if !inQuestion(r) || slices.Contains(wanted, r) {
			continue
		}
		// One that was replaced is gone.
		if err := netlink.RouteDel(r.netlink()); err != nil && !errors.Is(err, unix.ESRCH) {
			problems = append(problems, fmt.Errorf("remove the route %s: %w", r, err))
		}
	}
	return errors.Join(problems...)
}

// routes are those of the main table: ours, and others'.
func routes() (ours []route, others []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if family == netlink.FAMILY_V6 && !hasIPv6() {
			continue
		}
		// With a filter that lets all pass, so that those without an interface are listed too.
		found, err := whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, nil, fmt.Errorf("the routes of this machine: %w", err)
		}
		for _, r := range found {
			if r.Protocol == protocol {
				ours = append(ours, routeOf(r))
			} else {
				others = append(others, r)
			}
		}
	}
	return ours, others, nil
}
