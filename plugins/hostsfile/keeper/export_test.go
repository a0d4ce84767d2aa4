package keeper

import "net/netip"

// HostLine is the address and the names in one line of a hosts file.
func HostLine(content []byte, name string) (addresses []netip.Addr) {
	for _, line := range hostLines(content) {
		if line.named(name) {
			addresses = append(addresses, line.address)
		}
	}
	return addresses
}
