package podnet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/vishvananda/netlink"
)

const (
	// Device is the VXLAN interface of a node.
	Device = "reeve-pods"
	// Table is the table of nftables, of the family inet.
	Table = "reeve-kubernetes"
	// Port is the UDP port of VXLAN, as IANA has assigned it.
	Port = 4789
	// vni tells the pod network from other networks of VXLAN at the same port: "ree" in ASCII.
	vni = 0x726565
	// alias is what the interface says of itself to people, before the node's ID.
	alias = "pods of the Reeve node "
)

// Config is what the network of a node is made of.
type Config struct {
	NodeID string
	// Address is the node's own, over which pods of other nodes are reached: one that an interface of this machine has.
	Address netip.Addr
	// Cluster is the ranges of all pods: between them nothing is masqueraded, and what of them no peer has is unreachable.
	Cluster []netip.Prefix
	// Pods is the ranges of this node's pods: one of IPv4, one of IPv6, or one of each.
	Pods []netip.Prefix
	// Directory is where is kept which addresses pods have. Nothing in it is of use after a boot: it belongs below /run.
	Directory string
	// ConfDir is where containerd looks for the CNI configuration, which is written last of all.
	ConfDir string
	// MTU is that of pods; 0: what the interface with Address leaves.
	MTU int
	// Log may be nil.
	Log hclog.Logger
}

// Peer is another node.
type Peer struct {
	NodeID string
	// Address is the one at which it takes VXLAN, of the same family as the node's own.
	Address netip.Addr
	// Pods is the ranges of its pods.
	Pods []netip.Prefix
}

// TakenError says that something else has the place of a node's interface.
type TakenError struct {
	// Name is the interface's, and Alias what it says of itself; it may be empty.
	Name, Alias string
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("the interface %s is not this node's (its alias is %q): a network namespace has the pod network of one node; disable the other node's kubernetes-worker, or remove the interface",
		e.Name, e.Alias)
}

// Network is the pod network of a node. Its methods may be called from several goroutines.
type Network struct {
	config Config
	log    hclog.Logger

	// mu is held while the kernel is told: who comes last is right.
	mu    sync.Mutex
	table *table
}

// Up makes the network of a node, or takes the one that is there: pods that run are not disturbed, nor what the last SetPeers set, unless the node's own address has changed. The error may be a
// *TakenError.
func Up(ctx context.Context, config Config) (*Network, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("podnet: %w", err)
	}
	n := &Network{config: config, log: config.log()}
	for _, step := range []func(context.Context) error{n.checkForwarding, n.makeDevice, n.refuse, n.makeTable, n.configure} {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("podnet: %w", err)
		}
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("podnet: %w", err)
		}
	}
	return n, nil
}

func (c *Config) log() hclog.Logger {
	if c.Log == nil {
		return hclog.NewNullLogger()
	}
	return c.Log
}

// check puts the configuration into the form in which it is compared.
func (c *Config) check() error {
	if c.NodeID == "" {
		return errors.New("the configuration names no node")
	}
	c.Address = c.Address.Unmap().WithZone("")
	if !c.Address.IsValid() || c.Address.IsUnspecified() || c.Address.IsMulticast() {
		return fmt.Errorf("%v is no address of a node", c.Address)
	}
	if len(c.Pods) == 0 || len(c.Pods) > 2 {
		return fmt.Errorf("a node has one range of pods of IPv4, one of IPv6, or one of each, and not %v", c.Pods)
	}
	if len(c.Pods) == 2 && c.Pods[0].Addr().Is4() == c.Pods[1].Addr().Is4() {
		return fmt.Errorf("the two ranges of the node's pods are of the same family: %v", c.Pods)
	}
	var err error
	if c.Pods, err = ranges(c.Pods); err != nil {
		return err
	}
	for _, pods := range c.Pods {
		if pods.Addr().BitLen()-pods.Bits() < 2 {
			return fmt.Errorf("the range %s has no room for pods: its first address is the node's", pods)
		}
	}
	if c.Cluster, err = ranges(c.Cluster); err != nil {
		return err
	}
	for _, all := range slices.Concat(c.Pods, c.Cluster) {
		if all.Contains(c.Address) {
			return fmt.Errorf("the node's address %s is in the range of pods %s: the ranges of pods must be apart from those of nodes", c.Address, all)
		}
	}
	for _, directory := range []string{c.Directory, c.ConfDir} {
		if !filepath.IsAbs(directory) || filepath.Clean(directory) == "/" {
			return fmt.Errorf("%q is no directory for the network's files", directory)
		}
	}
	return nil
}

// ranges are prefixes as the kernel writes them, each once, in their order.
func ranges(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, prefix := range prefixes {
		if !prefix.IsValid() || prefix.Addr().Is4In6() || prefix.Bits() == 0 {
			return nil, fmt.Errorf("%v is no range of pods", prefix)
		}
		if prefix = prefix.Masked(); !slices.Contains(out, prefix) {
			out = append(out, prefix)
		}
	}
	return out, nil
}

// gateway is the first address of a range of pods: it is the node's, as its pods and other nodes see it.
func gateway(pods netip.Prefix) netip.Addr { return pods.Masked().Addr().Next() }

// hardware is the address of a node's interface, which everybody can tell from its ID: one of those that are administered locally.
func hardware(nodeID string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("reeve pods " + nodeID))
	address := net.HardwareAddr(sum[:6])
	address[0] = address[0]&^0x01 | 0x02
	return address
}

// network is a prefix as netlink takes it.
func network(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// prefixOf is what netlink gives as a prefix; not valid if it is none.
func prefixOf(network *net.IPNet) netip.Prefix {
	if network == nil {
		return netip.Prefix{}
	}
	bits, all := network.Mask.Size()
	address := addressOf(network.IP)
	if !address.IsValid() || address.BitLen() != all {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(address, bits)
}

func addressOf(ip net.IP) netip.Addr {
	address, _ := netip.AddrFromSlice(ip)
	return address.Unmap()
}

// family is netlink's number of the family of an address.
func family(address netip.Addr) int {
	if address.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
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

func notFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}
