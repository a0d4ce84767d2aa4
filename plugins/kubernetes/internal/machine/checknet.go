package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// leastNFT is what kube-proxy and the pod network want of nft.
var leastNFT = []int{1, 0, 1}

func checkNFT(ctx context.Context, _ CheckConfig) []string {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	output, err := exec.CommandContext(ctx, "nft", "--version").Output()
	if err != nil {
		return []string{fmt.Sprintf("The program nft cannot be run (%v), with which services and the pod network are made: install the package nftables.", err)}
	}
	if has := parseVersion(string(output)); slices.Compare(has, leastNFT) < 0 {
		return []string{fmt.Sprintf("The program nft is %s, and 1.0.1 or later is needed: install a newer package nftables.", strings.TrimSpace(string(output)))}
	}
	return nil
}

// checkNetwork makes what pods need in a network namespace that ends with it.
func checkNetwork(ctx context.Context, config CheckConfig) []string {
	if os.Geteuid() != 0 {
		return nil
	}
	var lacks []string
	err := apart(unix.CLONE_NEWNET, func() error {
		for _, link := range []netlink.Link{
			&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "check-vxlan"}, VxlanId: 1, Port: 4789},
			&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "check-veth"}, PeerName: "check-peer"},
		} {
			if err := netlink.LinkAdd(link); err != nil {
				lacks = append(lacks, fmt.Sprintf("The kernel makes no interface of the kind %s (%v), which the pod network needs: load the module (`modprobe %[1]s`), or boot a kernel that has it.", link.Type(), err))
			}
		}
		lacks = append(lacks, checkRules(ctx, config.IPv6)...)
		return nil
	})
	if err != nil {
		return []string{fmt.Sprintf("No network namespaces can be made (%v), of which every pod has one: boot a kernel that has them, or give the container that the node runs in CAP_SYS_ADMIN.", err)}
	}
	return lacks
}

// rules use what kube-proxy and the pod network use of nftables, for a family of IP.
const rules = `
table FAMILY reeve-check {
	set nodes { type KIND; flags interval; auto-merge; elements = { RANGE } }
	set lasting { type KIND; flags dynamic, timeout; timeout 1h; }
	chain endpoint {
		FAMILY saddr ADDRESS meta mark set meta mark or 0x4000
		update @lasting { FAMILY saddr }
		meta l4proto tcp dnat to ADDRESS
	}
	chain service {
		numgen random mod 1 vmap { 0 : goto endpoint }
	}
	map services { type KIND . inet_proto . inet_service : verdict; elements = { ADDRESS . tcp . 80 : goto service } }
	chain arriving {
		type nat hook prerouting priority dstnat
		FAMILY daddr . meta l4proto . th dport vmap @services
		fib daddr type local counter comment "nodes"
	}
	chain passing {
		type filter hook forward priority filter
		ct state invalid drop
		ct state new ct status dnat reject
	}
	chain entering {
		type filter hook input priority filter
		udp dport 4789 @th,96,24 1 FAMILY saddr != @nodes drop
	}
	chain leaving {
		type nat hook postrouting priority srcnat
		meta mark & 0x4000 != 0 masquerade fully-random
	}
}
`

// checkRules writes a table in this thread's network namespace.
func checkRules(ctx context.Context, over6 bool) []string {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	families := []*strings.Replacer{strings.NewReplacer("FAMILY", "ip", "KIND", "ipv4_addr", "RANGE", "192.0.2.0/24", "ADDRESS", "192.0.2.1")}
	if over6 {
		families = append(families, strings.NewReplacer("FAMILY", "ip6", "KIND", "ipv6_addr", "RANGE", "2001:db8::/64", "ADDRESS", "2001:db8::1"))
	}
	for _, family := range families {
		command := exec.CommandContext(ctx, "nft", "-f", "-")
		command.Stdin = strings.NewReader(family.Replace(rules))
		output, err := command.CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			return nil // which has been said
		}
		if err != nil {
			return []string{fmt.Sprintf("The kernel does not do all of nftables that services and the pod network need (%v: %s): load its modules (nf_tables, nft_nat, nft_masq, nft_ct, nft_fib_inet, nft_numgen, nft_reject_inet), or boot a kernel that has them.",
				err, strings.Join(strings.Fields(string(output)), " "))}
		}
	}
	return nil
}
