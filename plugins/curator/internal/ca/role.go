package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

const (
	// roleLifetime bounds for how long a stolen role key is worth something: a role that is taken from a node gets no other.
	roleLifetime = time.Hour
	// maxRequest is how large a certificate request may be: one of its own key and a name takes some 300 bytes.
	maxRequest = 8 << 10
)

// RequestedKey returns the key that a certificate request (PKCS #10, DER) proves to hold the private half of. Nothing else of it is looked at: what it asks for
// is nobody's to ask for.
func RequestedKey(der []byte) (crypto.PublicKey, error) {
	if len(der) == 0 || len(der) > maxRequest {
		return nil, fmt.Errorf("it has %d bytes, a certificate request has 1 to %d", len(der), maxRequest)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, errors.New("it is not a certificate request (PKCS #10, DER)")
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return nil, errors.New("its key is ECDSA on another curve than P-256: make one with P-256, or Ed25519")
		}
	case ed25519.PublicKey:
	default:
		return nil, fmt.Errorf("its key is %s: make one that is ECDSA with P-256, or Ed25519", request.PublicKeyAlgorithm)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, errors.New("it is not signed by its own key")
	}
	return request.PublicKey, nil
}

// IssueRole issues an SVID of a role on a node for a key that RequestedKey has returned: leaf first, DER. It is good as a client's and as a server's certificate, from an
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
