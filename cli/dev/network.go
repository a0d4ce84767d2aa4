package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/netns"
	"github.com/reeveproject/reeve/cli/setup"
)

// networkName is the file of a dev directory whose nodes have network namespaces.
const networkName = "network.json"

// networkVersion is that of the file.
const networkVersion = 1

// networkFile is what the file keeps: the addresses stay the same from one `reeve dev up` to the next.
type networkFile struct {
	Version int          `json:"version"`
	Subnet  netip.Prefix `json:"subnet"`
}

// The ports on which the nodes listen that have an address of their own: those of an installed node.
const (
	curatorPort = "7443"
	apiPort     = "7444"
)

// CheckNamespaces refuses network namespaces to a user who cannot have them.
func CheckNamespaces(uid int) error {
	if uid == 0 {
		return nil
	}
	return fault.New(fault.Refused, "a network namespace for each node needs root: --netns makes namespaces, a bridge and its interfaces on this machine",
		"Run the command as root, or leave --netns out: the nodes then have the loopback addresses "+loopback(1)+", "+loopback(2)+" and so on.")
}

// wholeState is where the dev directory really is that a node belongs to.
func (d *Directory) wholeState() string {
	if d.Number > 1 {
		return filepath.Dir(filepath.Dir(d.State))
	}
	return d.State
}

// readNetwork finds the network of the directory, if it has one.
func (d *Directory) readNetwork() error {
	file := filepath.Join(d.wholeState(), networkName)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept networkFile
	if err := json.Unmarshal(content, &kept); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if kept.Version != networkVersion || !kept.Subnet.Addr().Is4() || kept.Subnet.Bits() != 24 {
		return fmt.Errorf("%s: it is of version %d with the subnet %q: want version %d, and an IPv4 subnet of 24 bits", file, kept.Version, kept.Subnet, networkVersion)
	}
	d.network = &netns.Network{Owner: d.wholeState(), Subnet: kept.Subnet}
	return nil
}

// makeNetwork gives a directory that is made a network.
func (d *Directory) makeNetwork() error {
	network, err := netns.Choose(d.State)
	if err != nil {
		return networkFault(err)
	}
	content, err := json.Marshal(networkFile{Version: networkVersion, Subnet: network.Subnet})
	if err == nil {
		_, err = setup.CreateOnly(filepath.Join(d.State, networkName), append(content, '\n'), 0o644)
	}
	if err == nil {
		err = d.readNetwork()
	}
	if err != nil {
		d.network = &network
		return errors.Join(err, d.forgetNetwork())
	}
	return nil
}

// forgetNetwork takes away the network of a directory without parameters, with the file that keeps it: it is not to decide what a cluster is made with that is made later.
func (d *Directory) forgetNetwork() error {
	if d.network == nil {
		return nil
	}
	if err := d.RemoveNetwork(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(d.State, networkName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.network = nil
	return nil
}

// raiseNetwork makes the node's namespace, unless it is there.
func (d *Directory) raiseNetwork() error {
	if d.network == nil {
		return nil
	}
	there := d.network.Has(d.Number)
	if err := d.network.Add(d.Number); err != nil {
		return networkFault(err)
	}
	d.raised = d.raised || !there
	return nil
}

// Raised says whether the node's namespace was not there before this Directory was prepared.
func (d *Directory) Raised() bool { return d.raised }

// Lower takes the node's namespace away if it was not there before this Directory was prepared. Nothing must run in it: the roles that a dead core has left keep theirs.
func (d *Directory) Lower() error {
	if !d.raised {
		return nil
	}
	d.raised = false
	return d.RemoveNetwork()
}

func networkFault(err error) error {
	var taken *netns.TakenError
	var named *netns.NameError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &named):
		return fault.Wrap(fault.Refused, err, "cannot make the network of "+named.Network.Owner,
			"`ip -d link show "+named.Network.Bridge()+"` shows the other one: take it away, or give another directory with --dir.")
	case errors.As(err, &taken):
		return fault.Wrap(fault.Refused, err, "cannot make the network of "+taken.Network.Owner+" again as it was",
			"Take "+taken.By+" away (`ip address`, `ip route`; another dev directory's with `reeve dev down`), and run the command again.")
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.Refused, err, "the nodes cannot have network namespaces here",
			"It needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which root of a container may lack: run it on the machine itself, or leave --netns out.")
	default:
		return fault.Wrap(fault.Failed, err, "cannot make the network of the nodes", "`ip netns` and `ip link` show what there is; `reeve dev down` takes it away.")
	}
}

// RemoveNetwork takes the node's namespace away, and with the last one the bridge. The next Prepare makes them again, with the same addresses.
func (d *Directory) RemoveNetwork() error {
	if d.network == nil || os.Geteuid() != 0 {
		return nil
	}
	if err := d.network.Remove(d.Number); err != nil {
		return fault.Wrap(fault.Failed, err, "cannot remove the network namespace of the node in "+d.Path, "Run the command again.")
	}
	return nil
}

// Namespace is the name of the node's network namespace; empty: it has none of its own.
func (d *Directory) Namespace() string {
	if d.network == nil {
		return ""
	}
	return d.network.Namespace(d.Number)
}

// Address is that of the node: in its namespace the one that it has at this time.
func (d *Directory) Address() string {
	if d.network == nil {
		return loopback(d.Number)
	}
	return d.network.Current(d.Number).String()
}

// loopback is the address of a node that has no namespace of its own.
func loopback(number int) string { return "127.0.0." + strconv.Itoa(number) }

// listen sets where a node listens.
func (d *Directory) listen(node *setup.Node) {
	if d.network == nil {
		// Loopback alone: nothing of a dev node is to be reached from elsewhere.
		address := loopback(d.Number)
		node.Addresses, node.APIListen, node.CuratorListen = []string{address}, net.JoinHostPort(address, "0"), net.JoinHostPort(address, "0")
		return
	}
	// Whatever addresses it has: they are followed as they change.
	const all = "0.0.0.0"
	node.APIListen, node.CuratorListen = net.JoinHostPort(all, apiPort), net.JoinHostPort(all, curatorPort)
}
