package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"

	"sigs.k8s.io/knftables"
)

// multicast is not masqueraded: no reply has to be translated back.
var multicast = []string{"224.0.0.0/4", "ff00::/8"}

// table is the node's table of nftables.
type table struct{ nft knftables.Interface }

func openTable() (*table, error) {
	nft, err := knftables.New(knftables.InetFamily, Table)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("the program nft is not in PATH, which the package nftables has (1.0.1 or later): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return &table{nft}, nil
}

// The sets of the table, one for each family: addresses of peers, ranges of the node's pods, and what is reached without masquerade.
const (
	setPeers, setPods, setInside = "peers", "pods", "inside"
)

// families are those of IP, by how nft calls them: in the names of sets, as types, and in expressions.
var families = []struct {
	number, kind, header string
	is                   func(netip.Addr) bool
}{
	{"4", "ipv4_addr", "ip", netip.Addr.Is4},
	{"6", "ipv6_addr", "ip6", netip.Addr.Is6},
}

// makeTable writes the table. That there is one does not matter: it is written in one transaction, and who are peers is not forgotten by that.
func (n *Network) makeTable(ctx context.Context) error {
	t, err := openTable()
	if err != nil {
		return err
	}
	n.table = t
	err = t.nft.Run(ctx, t.write(n.config, false))
	if err != nil && ctx.Err() == nil {
		// One of another version may have a set of the same name that is another.
		n.log.Info("the table of the pod network is made anew, since it could not be changed", "table", Table, "problem", err)
		err = t.nft.Run(ctx, t.write(n.config, true))
	}
	if err != nil {
		return fmt.Errorf("write the table %s of nftables: %w", Table, err)
	}
	return nil
}

// write is the transaction that writes the table; anew: with a new table in place of the one that is there.
func (t *table) write(config Config, anew bool) *knftables.Transaction {
	tx := t.nft.NewTransaction()
	tx.Add(&knftables.Table{})
	if anew {
		tx.Delete(&knftables.Table{})
		tx.Add(&knftables.Table{})
	}
	arriving, leaving := &knftables.Chain{
		Name: "arriving", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.InputHook), Priority: knftables.PtrTo(knftables.FilterPriority),
	}, &knftables.Chain{
		Name: "leaving", Type: knftables.PtrTo(knftables.NATType), Hook: knftables.PtrTo(knftables.PostroutingHook), Priority: knftables.PtrTo(knftables.SNATPriority),
	}
	passing := &knftables.Chain{
		Name: "passing", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.ForwardHook), Priority: knftables.PtrTo(knftables.FilterPriority),
	}
	for _, chain := range []*knftables.Chain{arriving, passing, leaving} {
		tx.Add(chain)
		tx.Flush(chain)
	}
	// A VXLAN packet from a pod would leave with this node's address, and other nodes would accept it as a peer's. A pod with CAP_NET_RAW could also forge a peer's address. Both are dropped by the
	// interface names that the CNI plugin ptp uses.
	for _, chain := range []*knftables.Chain{arriving, passing} {
		tx.Add(&knftables.Rule{Chain: chain.Name, Rule: knftables.Concat(
			"iifname", `"veth*"`, "udp dport", strconv.Itoa(Port), "@th,96,24", fmt.Sprintf("%#x", vni), "counter drop",
		), Comment: knftables.PtrTo("VXLAN from a pod")})
	}
	for _, family := range families {
		for _, name := range []string{setPeers, setPods, setInside} {
			set := &knftables.Set{Name: name + family.number, Type: family.kind}
			if name != setPeers {
				set.Flags = []knftables.SetFlag{knftables.IntervalFlag}
				set.AutoMerge = knftables.PtrTo(true)
			}
			tx.Add(set)
			if name != setPeers {
				tx.Flush(set)
			}
		}
		for _, pods := range config.Pods {
			if family.is(pods.Addr()) {
				tx.Add(&knftables.Element{Set: setPods + family.number, Key: []string{pods.String()}})
				tx.Add(&knftables.Element{Set: setInside + family.number, Key: []string{pods.String()}})
			}
		}
		for _, all := range config.Cluster {
			if family.is(all.Addr()) {
				tx.Add(&knftables.Element{Set: setInside + family.number, Key: []string{all.String()}})
			}
		}
		for _, group := range multicast {
			if family.is(netip.MustParsePrefix(group).Addr()) {
				tx.Add(&knftables.Element{Set: setInside + family.number, Key: []string{group}})
			}
		}
		// The VNI is in the second word of what follows the header of UDP.
		tx.Add(&knftables.Rule{Chain: arriving.Name, Rule: knftables.Concat(
			"udp dport", strconv.Itoa(Port), "@th,96,24", fmt.Sprintf("%#x", vni), family.header, "saddr != @"+setPeers+family.number, "counter drop",
		), Comment: knftables.PtrTo("VXLAN from an address that is no peer's")})
		tx.Add(&knftables.Rule{Chain: passing.Name, Rule: knftables.Concat(
			"udp dport", strconv.Itoa(Port), "@th,96,24", fmt.Sprintf("%#x", vni), family.header, "saddr @"+setPods+family.number, "counter drop",
		), Comment: knftables.PtrTo("VXLAN from a pod")})
		tx.Add(&knftables.Rule{Chain: leaving.Name, Rule: knftables.Concat(
			family.header, "saddr @"+setPods+family.number, family.header, "daddr != @"+setInside+family.number, "masquerade fully-random",
		), Comment: knftables.PtrTo("from pods to other addresses")})
	}
	return tx
}

// setPeers says who may send by VXLAN.
func (t *table) setPeers(ctx context.Context, peers []netip.Addr) error {
	tx := t.nft.NewTransaction()
	for _, family := range families {
		set := &knftables.Set{Name: setPeers + family.number, Type: family.kind}
		tx.Add(set)
		tx.Flush(set)
		for _, peer := range peers {
			if family.is(peer) {
				tx.Add(&knftables.Element{Set: set.Name, Key: []string{peer.String()}})
			}
		}
	}
	if err := t.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("tell the table %s of nftables who the peers are: %w", Table, err)
	}
	return nil
}

// remove removes the table, if there is one.
func (t *table) remove(ctx context.Context) error {
	tx := t.nft.NewTransaction()
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
	if err := t.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("remove the table %s of nftables: %w", Table, err)
	}
	return nil
}
