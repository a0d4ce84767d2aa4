package hostapi_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	spiffe "github.com/reeveproject/reeve/proto/identity"
)

const trustDomain = "test.reeve"

// issuer stands in for the cluster's curators.
type issuer struct {
	mu    sync.Mutex
	key   *ecdsa.PrivateKey
	ca    []*x509.Certificate // the last one signs
	calls int
	// refuse is what a call ends with, and refused is told then; nil: with an SVID. change changes what is signed.
	refuse  error
	refused func()
	change  func(*x509.Certificate)
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{}
	i.rotate(t)
	return i
}

// rotate adds a CA, which signs from now on.
func (i *issuer) rotate(t testing.TB) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of a test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, URIs: []*url.URL{spiffe.ClusterURI(trustDomain)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.ca = key, append(i.ca[:len(i.ca):len(i.ca)], certificate)
}

// identity is that of a node whose cluster this is.
func (i *issuer) identity() *identity.Identity {
	i.mu.Lock()
	defer i.mu.Unlock()
	return &identity.Identity{NodeID: nodeID, TrustDomain: trustDomain, CA: i.ca}
}

func (i *issuer) set(change func(*issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
}

func (i *issuer) called() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls
}

// IssueRoleSVID implements hostapi.Issuer.
func (i *issuer) IssueRoleSVID(ctx context.Context, role string, csr []byte) (svid, ca [][]byte, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls++
	if i.refuse != nil {
		if i.refused != nil {
			i.refused()
		}
		return nil, nil, i.refuse
	}
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, nil, err
	}
	// As the cluster does: an hour ago, since clocks differ.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(i.calls) + 1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		URIs: []*url.URL{spiffe.RoleURI(trustDomain, nodeID, role)}, PublicKey: request.PublicKey,
	}
	if i.change != nil {
		i.change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.ca[len(i.ca)-1], template.PublicKey, i.key)
	if err != nil {
		return nil, nil, err
	}
	for _, certificate := range i.ca {
		ca = append(ca, certificate.Raw)
	}
	return [][]byte{der}, ca, ctx.Err()
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// seedKey is the same key each time, for seeds of fuzz targets.
func seedKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// csrOf is a request for a certificate. Without randomness, a signature is the same each time.
func csrOf(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	csr, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}
