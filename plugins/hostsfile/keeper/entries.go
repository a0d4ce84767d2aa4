package keeper

import (
	"net/netip"
	"regexp"

	"github.com/reeveproject/reeve/plugins/hostsfile/block"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// hostName is the form of a node ID. What comes out of the directory was said by other machines, and must not be able to write
// anything but a name into the file.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// entries are the hosts of a directory, in its order. An address that cannot be one of another machine's view of a node (none, or one of a link)
// is left out.
func entries(directory *hostv1.Directory) []block.Entry {
	var found []block.Entry
	seen := make(map[block.Entry]bool)
	for _, node := range directory.GetNodes() {
		if !hostName.MatchString(node.GetNodeId()) {
			continue
		}
		for _, text := range node.GetAddresses() {
			address, err := netip.ParseAddr(text)
			if err != nil || address.Zone() != "" || address.IsUnspecified() || address.IsLinkLocalUnicast() || address.IsMulticast() {
				continue
			}
			entry := block.Entry{Address: address.Unmap(), Name: node.GetNodeId()}
			if !seen[entry] {
				seen[entry] = true
				found = append(found, entry)
			}
		}
	}
	return found
}
