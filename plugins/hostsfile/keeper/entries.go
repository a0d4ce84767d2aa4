package keeper

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/plugins/hostsfile/block"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// hostName is the form of a node ID. What comes out of the directory was said by other machines, and must not be able to write
// anything but a name into the file.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// entries are the hosts of a directory, in its order, which is that of their IDs. Of this node the machine itself knows more: its addresses, unless
// there are none, stand for those that the directory has of it, which come late and stay as they are while the cluster is out of reach. An
// address that cannot be one of another machine's view of a node (none, or one of a link) is left out. hostname is the name that the machine is given, so that it
// resolves itself by that name too; empty: it is given none.
func entries(directory *hostv1.Directory, self, hostname string, network []string) []block.Entry {
	nodes := slices.Clone(directory.GetNodes())
	if len(addresses(network)) > 0 {
		own := &hostv1.DirectoryNode{NodeId: self, Addresses: network}
		nodes = slices.DeleteFunc(nodes, func(node *hostv1.DirectoryNode) bool { return node.GetNodeId() == self })
		place, _ := slices.BinarySearchFunc(nodes, self, func(node *hostv1.DirectoryNode, id string) int { return strings.Compare(node.GetNodeId(), id) })
		nodes = slices.Insert(nodes, place, own)
	}
	var found []block.Entry
	seen := make(map[block.Entry]bool)
	for _, node := range nodes {
		if !hostName.MatchString(node.GetNodeId()) {
			continue
		}
		for _, address := range addresses(node.GetAddresses()) {
			entry := block.Entry{Address: address, Name: node.GetNodeId()}
			if entry.Name == self && !strings.EqualFold(hostname, self) {
				entry.Alias = hostname
			}
			if !seen[entry] {
				seen[entry] = true
				found = append(found, entry)
			}
		}
	}
	return found
}

func addresses(texts []string) []netip.Addr {
	var found []netip.Addr
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" || address.IsUnspecified() || address.IsLinkLocalUnicast() || address.IsMulticast() {
			continue
		}
		found = append(found, address.Unmap())
	}
	return found
}

// of returns the addresses of the entries of one name.
func of(entries []block.Entry, name string) []netip.Addr {
	var found []netip.Addr
	for _, entry := range entries {
		if entry.Name == name {
			found = append(found, entry.Address)
		}
	}
	return found
}
