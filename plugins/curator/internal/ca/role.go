package ca

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

// roleLifetime bounds for how long a stolen role key is worth something: a role that is taken from a node gets no other.
const roleLifetime = time.Hour

// IssueRole issues an SVID of a role on a node for a key that identity.RequestedKey has returned: leaf first, DER. It is good as a client's and as a server's certificate, from an
// hour ago (clocks differ) for an hour.
func (a *Authority) IssueRole(nodeID, role string, key crypto.PublicKey, now time.Time) ([][]byte, error) {
	leaf, err := a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: role + " of " + nodeID},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(roleLifetime),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{identity.RoleURI(a.trustDomain, nodeID, role)},
	}, key, now)
	if err != nil {
		return nil, err
	}
	return [][]byte{leaf.Raw}, nil
}
