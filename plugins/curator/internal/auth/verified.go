package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"hash"
	"sync"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// mostVerified is how many chains are remembered to have been verified: more than nodes have a connection.
const mostVerified = 1 << 14

// verified is the chains of certificates that were verified, by digest. Who is let in is not in it: that is decided for each call by what the store holds.
type verified struct {
	mu     sync.Mutex
	chains map[[sha256.Size]byte]period
}

// period is when all certificates of a chain are valid.
type period struct{ from, to time.Time }

// digest is what a verification depends on, but for the time: the certificates, in their order, and the cluster with its CA.
func digest(chain []*x509.Certificate, state *store.State) (sum [sha256.Size]byte) {
	of := sha256.New()
	write(of, []byte(state.Cluster.GetClusterId()))
	for _, certificate := range chain {
		write(of, certificate.Raw)
	}
	write(of, nil) // no certificate is empty
	for _, root := range state.CA {
		write(of, root)
	}
	of.Sum(sum[:0])
	return sum
}

// write writes a value so that none can be taken for two others.
func write(to hash.Hash, value []byte) {
	to.Write(binary.BigEndian.AppendUint64(nil, uint64(len(value))))
	to.Write(value)
}

// at reports whether a chain was verified, and is valid at a time.
func (v *verified) at(shown [sha256.Size]byte, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	valid, is := v.chains[shown]
	return is && !now.Before(valid.from) && !now.After(valid.to)
}

// keep remembers a chain that was verified in one of the ways that were found, which is the first.
func (v *verified) keep(shown [sha256.Size]byte, ways [][]*x509.Certificate) {
	if len(ways) == 0 || len(ways[0]) == 0 {
		return
	}
	valid := period{from: ways[0][0].NotBefore, to: ways[0][0].NotAfter}
	for _, certificate := range ways[0] {
		if certificate.NotBefore.After(valid.from) {
			valid.from = certificate.NotBefore
		}
		if certificate.NotAfter.Before(valid.to) {
			valid.to = certificate.NotAfter
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.chains == nil {
		v.chains = make(map[[sha256.Size]byte]period)
	}
	for other := range v.chains {
		if len(v.chains) < mostVerified {
			break
		}
		delete(v.chains, other) // any: it is verified again
	}
	v.chains[shown] = valid
}
