package spread

import (
	"bytes"
	"crypto/sha256"
	"slices"
)

// Order returns the addresses, each once, in an order that depends on who asks and nothing else: every client keeps to its own, and of many clients each address is
// the first of as many. An address more or less moves only those clients whose first it is (rendezvous hashing).
func Order(who string, addresses []string) []string {
	list := slices.Clone(addresses)
	slices.SortFunc(list, func(a, b string) int {
		first, second := sha256.Sum256([]byte(who+"\x00"+a)), sha256.Sum256([]byte(who+"\x00"+b))
		return bytes.Compare(second[:], first[:])
	})
	return slices.Compact(list)
}
