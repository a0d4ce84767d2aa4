package fakecluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

// authority is the CA of the cluster.
type authority struct {
	domain      string
	key         ed25519.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(domain string) (*authority, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// It is good by the clock of the cluster, and by that of the TLS of the tests.
		SerialNumber: big.NewInt(1), NotBefore: Began.AddDate(-1, 0, 0), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		URIs: []*url.URL{identity.ClusterURI(domain)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{domain: domain, key: key, certificate: certificate}, err
}

// server makes a certificate for a server with a SPIFFE ID and, if not empty, a DNS name.
func (a *authority) server(uri *url.URL, name string) (tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{uri}, BasicConstraintsValid: true,
	}
	if name != "" {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	// Who only has a pin of the root finds it in the chain.
	return tls.Certificate{Certificate: [][]byte{der, a.certificate.Raw}, PrivateKey: key}, err
}

// session makes the certificate of a session for a key.
func (a *authority) session(session identity.Session, key ed25519.PublicKey, from, until time.Time) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{identity.SessionURI(a.domain, session)}, BasicConstraintsValid: true,
	}
	return x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
}

// PEM returns the CA's certificate.
func (a *authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}
