package peers

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"slices"
)

// A CA is replaced in three steps: all members trust the new one as well as the old one (Prepare), all have certificates of the new one (Activate), nobody trusts the old one any more (Retire).
// Each step is taken when all members follow the one before.

// Phase is how far the replacement of the CA has come.
type Phase int

// The phases, in their order.
const (
	Steady Phase = iota
	Prepared
	Active
)

// Phase says how far it has come.
func (a *Authority) Phase() Phase {
	switch {
	case a.other.certificate == nil:
		return Steady
	case a.other.key != nil:
		return Prepared
	}
	return Active
}

// errTurn says that it is not the turn of this step.
var errTurn = errors.New("the CA of the store's peers has come to another step of its replacement")

// Prepare makes the CA that is to replace this one.
func (a *Authority) Prepare(cluster string) (*Authority, error) {
	if a.Phase() != Steady {
		return nil, errTurn
	}
	next, err := newSigner(cluster, new(big.Int).Add(a.signs.certificate.SerialNumber, big.NewInt(1)))
	return &Authority{signs: a.signs, other: next}, err
}

// Activate has the new one sign. The key of the old one is forgotten.
func (a *Authority) Activate() (*Authority, error) {
	if a.Phase() != Prepared {
		return nil, errTurn
	}
	return &Authority{signs: a.other, other: signer{certificate: a.signs.certificate}}, nil
}

// Retire forgets the old one.
func (a *Authority) Retire() (*Authority, error) {
	if a.Phase() != Active {
		return nil, errTurn
	}
	return &Authority{signs: a.signs}, nil
}

// markSize is how many bytes of a certificate's SHA-256 tell it from any other.
const markSize = 8

// Mark names the CAs that are trusted, and the one that signs.
func (a *Authority) Mark() string {
	var mark []byte
	for _, der := range a.Certificates() {
		sum := sha256.Sum256(der)
		mark = append(mark, sum[:markSize]...)
	}
	return hex.EncodeToString(mark)
}

// Follows reports whether the credentials are as a CA demands: its certificates are those that are trusted, and the member's own is of the one that signs.
func (c *Credentials) Follows(authority *Authority) bool {
	same := slices.EqualFunc(c.authorities, authority.Certificates(), func(a *x509.Certificate, b []byte) bool { return bytes.Equal(a.Raw, b) })
	return same && c.signed(authority)
}

// signed reports whether the member's certificate is of the CA that signs now.
func (c *Credentials) signed(authority *Authority) bool {
	return c.certificate.Leaf.CheckSignatureFrom(authority.signs.certificate) == nil
}

// Ahead reports whether the credentials follow a later step than this one. After a crash a member may start with less of the store's data than it had. It must not go back: the others may not trust any
// more what it trusted then.
func (c *Credentials) Ahead(authority *Authority) bool {
	var theirs []*x509.Certificate
	for _, one := range []signer{authority.signs, authority.other} {
		if one.certificate != nil {
			theirs = append(theirs, one.certificate)
		}
	}
	return compare(c.authorities, theirs) > 0
}

// compare orders the steps by the CAs that are trusted in each.
func compare(a, b []*x509.Certificate) int {
	numberA, phaseA := place(a)
	numberB, phaseB := place(b)
	return cmp.Or(numberA.Cmp(numberB), cmp.Compare(phaseA, phaseB))
}

// place is the number of the oldest CA that is trusted, and how far it has come with its successor.
func place(authorities []*x509.Certificate) (*big.Int, Phase) {
	first := authorities[0].SerialNumber
	if len(authorities) == 1 {
		return first, Steady
	}
	if second := authorities[1].SerialNumber; second.Cmp(first) < 0 {
		return second, Active
	}
	return first, Prepared
}
