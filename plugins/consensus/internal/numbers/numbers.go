package numbers

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/proto/identity"
)

// Where root keeps the numbers.
const (
	// Prefix is followed by the name of a user; the value is its number.
	Prefix = "/reeve/store/numbers/"
	// LastKey holds the number that was given last, to whomever.
	LastKey = "/reeve/store/last-number"
)

// The ID of a lease is the number of its user, in the upper bits, and a random part.
const (
	randomBits = 40
	// Max is the largest number: with it an ID is still positive, as etcd and its clients want it.
	Max = 1<<(63-randomBits) - 1
)

// Key is where the number of a user is kept.
func Key(user string) string { return Prefix + user }

// UserOf is the user whose number a key holds, if it is such a key.
func UserOf(key string) (user string, ok bool) {
	user, ok = strings.CutPrefix(key, Prefix)
	return user, ok && identity.ValidConsensusUser(user)
}

// Format is a number as it is stored.
func Format(number uint32) string { return strconv.FormatUint(uint64(number), 10) }

// Parse reads a stored number.
func Parse(content []byte) (uint32, error) {
	number, err := strconv.ParseUint(string(content), 10, 32)
	if err != nil || number == 0 || number > Max || Format(uint32(number)) != string(content) {
		return 0, fmt.Errorf("%.40q is not the number of a user: 1 to %d", content, Max)
	}
	return uint32(number), nil
}

// NewLease returns an ID for a lease of the user with a number.
func NewLease(number uint32) int64 {
	return int64(number)<<randomBits | rand.Int64N(1<<randomBits)
}

// OfLease is the number of the user whose a lease is; 0: nobody's.
func OfLease(id int64) uint32 {
	if id < 0 {
		return 0
	}
	return uint32(id >> randomBits)
}
