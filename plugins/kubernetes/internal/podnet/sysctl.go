package podnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	forward4 = "net/ipv4/ip_forward"
	forward6 = "net/ipv6/conf/all/forwarding"
)

// Sysctls is what the kernel has to be set to before Up, by names as below /proc/sys, for pods of some ranges: whoever sets them remembers what they were.
func Sysctls(pods []netip.Prefix) (map[string]string, error) {
	values := make(map[string]string)
	for _, prefix := range pods {
		if prefix.Addr().Is4() {
			values[forward4] = "1"
			continue
		}
		values[forward6] = "1"
		// Who forwards IPv6 takes no more routes from routers (accept_ra 1), which may be how this machine has its own: 2 has it go on.
		routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V6) })
		if err != nil {
			return nil, fmt.Errorf("podnet: the routes of this machine: %w", err)
		}
		for _, route := range routes {
			if route.Protocol != unix.RTPROT_RA || route.LinkIndex == 0 {
				continue
			}
			link, err := netlink.LinkByIndex(route.LinkIndex)
			if notFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("podnet: the interface of the route to %s: %w", route.Dst, err)
			}
			if link.Attrs().Flags&net.FlagLoopback == 0 {
				values[filepath.Join("net/ipv6/conf", link.Attrs().Name, "accept_ra")] = "2"
			}
		}
	}
	return values, nil
}

// checkForwarding fails where the machine forwards nothing. The CNI plugins would set it by themselves, and nobody would know afterwards what it was.
func (n *Network) checkForwarding(context.Context) error {
	for _, name := range []string{forward4, forward6} {
		if !slices.ContainsFunc(n.config.Pods, func(p netip.Prefix) bool { return p.Addr().Is4() == (name == forward4) }) {
			continue
		}
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if errors.Is(err, fs.ErrNotExist) && name == forward6 {
			return errors.New("pods are to have addresses of IPv6, which this kernel has not: give the cluster ranges of IPv4 only, or boot without ipv6.disable=1")
		}
		if err != nil {
			return err
		}
		if value = bytes.TrimSpace(value); string(value) != "1" {
			return fmt.Errorf("the machine does not forward packets: the sysctl %s is %s, and must be 1", name, value)
		}
	}
	return nil
}
