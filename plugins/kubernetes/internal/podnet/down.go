package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// Down removes everything that Up and SetPeers have made, and what the CNI plugins have left by this configuration: interfaces, routes, the table, the configuration and the given addresses. There need be
// nothing of it. Pods must have been stopped: those that run are cut off. Of the configuration it takes NodeID, Directory, ConfDir, Pods (may be empty) and Log. The directory with the configuration
// stays, and so does everything that is another node's or program's: the error is a *TakenError if the network is another node's.
func Down(ctx context.Context, config Config) error {
	// First, so that containerd makes no pod that has no network.
	problems := []error{config.removeFiles()}
	problems = append(problems, config.removeFromKernel(ctx)...)
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("podnet: %w", err)
	}
	return nil
}

func (c *Config) removeFromKernel(ctx context.Context) []error {
	var gateways []netip.Addr
	for _, pods := range c.Pods {
		if pods.IsValid() {
			gateways = append(gateways, gateway(pods))
		}
	}
	link, err := netlink.LinkByName(Device)
	if err != nil && !notFound(err) {
		return []error{fmt.Errorf("the interface %s: %w", Device, err)}
	}
	var problems []error
	if err == nil {
		var taken *TakenError
		if _, err := own(link, c.NodeID); errors.As(err, &taken) {
			return []error{taken}
		}
		addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
		if err != nil {
			return []error{fmt.Errorf("the addresses of the interface %s: %w", Device, err)}
		}
		for _, address := range addresses {
			gateways = append(gateways, prefixOf(address.IPNet).Addr())
		}
	}
	problems = append(problems, removePairs(gateways), setRoutes(nil, func(route) bool { return true }), removeTables(ctx))
	// Last: by its addresses the rest is found again, if something of it has failed.
	if link != nil && errors.Join(problems...) == nil {
		if err := netlink.LinkDel(link); err != nil && !notFound(err) {
			problems = append(problems, fmt.Errorf("remove the interface %s: %w", Device, err))
		}
	}
	return problems
}

// removePairs removes the pods' interfaces that are left on this side: the plugin ptp has given each the node's address among its pods. Usually they are gone with the pods.
func removePairs(gateways []netip.Addr) error {
	addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("the addresses of this machine: %w", err)
	}
	var problems []error
	for _, address := range addresses {
		prefix := prefixOf(address.IPNet)
		if !prefix.IsSingleIP() || !slices.Contains(gateways, prefix.Addr()) {
			continue
		}
		link, err := netlink.LinkByIndex(address.LinkIndex)
		if err == nil {
			if _, pair := link.(*netlink.Veth); !pair {
				continue
			}
			err = netlink.LinkDel(link)
		}
		if err != nil && !notFound(err) && !errors.Is(err, unix.ENODEV) {
			problems = append(problems, fmt.Errorf("remove the interface of a pod: %w", err))
		}
	}
	return errors.Join(problems...)
}

// removeTables removes the table of the network, and those of the plugin portmap, which never removes them itself: only if they forward nothing, since whoever else uses the plugin has the same ones.
func removeTables(ctx context.Context) error {
	t, err := openTable()
	if errors.Is(err, exec.ErrNotFound) {
		return nil // and so nobody has made the table
	}
	if err != nil {
		return err
	}
	problems := []error{t.remove(ctx)}
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		nft, err := knftables.New(family, hostPorts)
		if err == nil {
			err = removeHostPorts(ctx, nft)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("remove the table %s of nftables: %w", hostPorts, err))
		}
	}
	return errors.Join(problems...)
}

// hostPorts is the table of the plugin portmap, of the families ip and ip6.
const hostPorts = "cni_hostport"

func removeHostPorts(ctx context.Context, nft knftables.Interface) error {
	chains, err := nft.List(ctx, "chains")
	if knftables.IsNotFound(err) || err == nil && len(chains) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	// The rules of pods are in these chains; in the others are those that lead there.
	for _, chain := range []string{"hostports", "hostip_hostports", "masquerading"} {
		rules, err := nft.ListRules(ctx, chain)
		if err != nil && !knftables.IsNotFound(err) {
			return err
		}
		if len(rules) > 0 {
			return nil
		}
	}
	tx := nft.NewTransaction()
	tx.Delete(&knftables.Table{})
	return nft.Run(ctx, tx)
}
