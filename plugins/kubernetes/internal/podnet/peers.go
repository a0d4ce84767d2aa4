package podnet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tellWithin bounds how long nft may take to be told of the peers.
const tellWithin = time.Minute

// neighbour is a permanent entry: of the table of neighbours (a node's first address is at this hardware address), or of the interface's forwarding (this hardware address is behind that node).
type neighbour struct {
	family   int
	address  netip.Addr
	hardware string
}

func (e neighbour) netlink(device int) *netlink.Neigh {
	out := &netlink.Neigh{LinkIndex: device, Family: e.family, State: netlink.NUD_PERMANENT, IP: e.address.AsSlice(), HardwareAddr: net.HardwareAddr(e.hardware)}
	if e.family == unix.AF_BRIDGE {
		out.Flags = netlink.NTF_SELF
	}
	return out
}

// plan is what SetPeers has the kernel know.
type plan struct {
	peers      []netip.Addr
	neighbours []neighbour
	routes     []route
}

// SetPeers sets the other nodes: exactly those, and what is there of any other is removed. The node itself may be among them, and one that has no address or no ranges yet; they are left out. A peer that
// cannot be reached is in the error, and all others are set. To set the same again changes nothing.
func (n *Network) SetPeers(peers []Peer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	link, err := netlink.LinkByName(Device)
	if err != nil {
		return fmt.Errorf("podnet: the interface %s, which Up makes: %w", Device, err)
	}
	if _, err := own(link, n.config.NodeID); err != nil {
		return fmt.Errorf("podnet: %w", err)
	}
	device := link.Attrs().Index
	wanted, problems := n.plan(peers, device)
	ctx, cancel := context.WithTimeout(context.Background(), tellWithin)
	defer cancel()
	// Accept packets from new peers before adding routes to them.
	if err := n.table.setPeers(ctx, wanted.peers); err != nil {
		problems = append(problems, err)
	}
	stale, err := setNeighbours(device, wanted.neighbours)
	problems = append(problems, err, setRoutes(wanted.routes, func(r route) bool { return r.by.IsValid() }))
	// No route uses them any more.
	for _, e := range stale {
		if err := netlink.NeighDel(e.netlink(device)); err != nil && !errors.Is(err, unix.ENOENT) {
			problems = append(problems, fmt.Errorf("remove the neighbour %s: %w", e.address, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("podnet: %w", err)
	}
	return nil
}

// plan says what there is to be of the peers, and of which there can be nothing.
func (n *Network) plan(peers []Peer, device int) (plan, []error) {
	var wanted plan
	var problems []error
	taken := make(map[netip.Prefix]string)
	for _, pods := range n.config.Pods {
		taken[pods] = n.config.NodeID
	}
	// In an order of their own, so that of two with the same range it is always the same one that has it.
	for _, peer := range slices.SortedFunc(slices.Values(peers), func(a, b Peer) int { return cmp.Compare(a.NodeID, b.NodeID) }) {
		address := peer.Address.Unmap().WithZone("")
		if peer.NodeID == n.config.NodeID || !address.IsValid() || len(peer.Pods) == 0 {
			continue
		}
		if address.Is4() != n.config.Address.Is4() {
			problems = append(problems, fmt.Errorf("the node %s cannot be reached: its address %s is of another family than this node's, %s", peer.NodeID, address, n.config.Address))
			continue
		}
		pods, err := ranges(peer.Pods)
		if err != nil {
			problems = append(problems, fmt.Errorf("the node %s: %w", peer.NodeID, err))
			continue
		}
		wanted.peers = append(wanted.peers, address)
		at := string(hardware(peer.NodeID))
		wanted.neighbours = append(wanted.neighbours, neighbour{family: unix.AF_BRIDGE, address: address, hardware: at})
		for _, prefix := range pods {
			if owner, with := overlapping(taken, prefix); owner != "" {
				problems = append(problems, fmt.Errorf("the range of pods %s of the node %s overlaps with %s of the node %s: the later one has no route", prefix, peer.NodeID, with, owner))
				continue
			}
			taken[prefix] = peer.NodeID
			by := gateway(prefix)
			wanted.neighbours = append(wanted.neighbours, neighbour{family: family(by), address: by, hardware: at})
			wanted.routes = append(wanted.routes, route{to: prefix, by: by, device: device})
		}
	}
	slices.SortFunc(wanted.peers, netip.Addr.Compare)
	wanted.peers = slices.Compact(wanted.peers)
	return wanted, problems
}

func overlapping(taken map[netip.Prefix]string, prefix netip.Prefix) (owner string, with netip.Prefix) {
	for other, nodeID := range taken {
		if other.Overlaps(prefix) && (owner == "" || nodeID < owner) {
			owner, with = nodeID, other
		}
	}
	return owner, with
}

// setNeighbours adds the entries that are wanted, and returns those that are not.
func setNeighbours(device int, wanted []neighbour) (stale []neighbour, err error) {
	there, err := neighbours(device)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, e := range wanted {
		if slices.Contains(there, e) {
			continue
		}
		if err := netlink.NeighSet(e.netlink(device)); err != nil {
			problems = append(problems, fmt.Errorf("set the neighbour %s at %s: %w", e.address, net.HardwareAddr(e.hardware), err))
		}
	}
	if there, err = neighbours(device); err != nil {
		problems = append(problems, err)
	}
	for _, e := range there {
		if !slices.Contains(wanted, e) {
			stale = append(stale, e)
		}
	}
	return stale, errors.Join(problems...)
}

// neighbours are the permanent entries of the interface.
func neighbours(device int) ([]neighbour, error) {
	var all []neighbour
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6, unix.AF_BRIDGE} {
		found, err := whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(device, family) })
		if err != nil {
			return nil, fmt.Errorf("the neighbours at the interface %s: %w", Device, err)
		}
		for _, e := range found {
			if e.State&netlink.NUD_PERMANENT == 0 || bytes.Equal(e.HardwareAddr, make([]byte, 6)) {
				continue
			}
			all = append(all, neighbour{family: family, address: addressOf(e.IP), hardware: string(e.HardwareAddr)})
		}
	}
	return all, nil
}
