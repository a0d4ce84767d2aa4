// Package spread orders the addresses of servers that are all alike so that many clients do not all go to the same one.
package spread

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Order returns the addresses, each once, in an order that depends on who asks and nothing else: every client keeps to its own, and of many clients each address is
// the first of as many. An address more or less moves only those clients whose first it is (rendezvous hashing).
func Order(who string, addresses []string) []string {
	weights := make(map[string]uint64, len(addresses))
	list := make([]string, 0, len(addresses))
	for _, address := range addresses {
		if _, there := weights[address]; !there {
			sum := sha256.Sum256([]byte(who + "\x00" + address))
			weights[address] = binary.BigEndian.Uint64(sum[:])
			list = append(list, address)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b)) })
	return list
}
