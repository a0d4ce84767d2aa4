package target

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/identity"
)

// proof returns what the caller shows in one handshake. It is called from several goroutines.
type proof func() (*tls.Certificate, error)

// proveKey proves the holder of a key that the cluster has pinned.
func proveKey(key ed25519.PrivateKey, now func() time.Time) proof {
	return func() (*tls.Certificate, error) {
		certificate, err := identity.SelfSigned(key, now())
		return &certificate, err
	}
}

// trust is whom the caller believes and by what it proves itself.
type trust struct {
	roots  []*x509.Certificate
	ca     *x509.CertPool
	domain string
	proof  proof
	// now is the clock by which certificates are good.
	now func() time.Time
	// back is what to do where the cluster has a newer CA.
	back string
}

func newTrust(certificates []*x509.Certificate, proof proof, now func() time.Time, back string) (*trust, error) {
	domain, err := contexts.TrustDomainOf(certificates)
	if err != nil {
		return nil, err
	}
	t := &trust{roots: certificates, ca: x509.NewCertPool(), domain: domain, proof: proof, now: now, back: back}
	for _, certificate := range certificates {
		t.ca.AddCert(certificate)
	}
	return t, nil
}

// curator is how the caller speaks to a curator.
func (t *trust) curator() *tls.Config {
	name := identity.CuratorName(t.domain)
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: name,
		// VerifyConnection does all of the verification, and says more of what is wrong.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := t.verify(state, "the curator", name)
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.proof() },
	}
}

// node is how the caller speaks to the own API of a node: its certificate has no DNS name but its SPIFFE ID, which is what is verified.
func (t *trust) node(nodeID string) *tls.Config {
	return bySPIFFE(t.proof, func(state tls.ConnectionState) error { return t.verifyNode(state, nodeID) })
}

// bySPIFFE configures TLS to a server whose certificate has a SPIFFE ID and no DNS name. verify checks that ID.
func bySPIFFE(proof proof, verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The verification that is left out here is the one of the DNS name; VerifyConnection does the rest.
		InsecureSkipVerify:   true,
		VerifyConnection:     verify,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return proof() },
	}
}

func (t *trust) verifyNode(state tls.ConnectionState, nodeID string) error {
	uris, err := t.verify(state, "the node", "")
	if want := identity.NodeURI(t.domain, nodeID).String(); err == nil && (len(uris) != 1 || uris[0].String() != want) {
		err = fmt.Errorf("the certificate is for %v, not for %s", uris, want)
	}
	return err
}

// verify checks that the cluster's CA issued a server's certificate, for a DNS name if one is given, and returns the URIs in it. who names the server in errors.
func (t *trust) verify(state tls.ConnectionState, who, name string) ([]*url.URL, error) {
	if len(state.PeerCertificates) == 0 {
		return nil, errors.New(who + " shows no certificate")
	}
	between := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		between.AddCert(certificate)
	}
	leaf := state.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: t.ca, Intermediates: between, CurrentTime: t.now(), DNSName: name, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return leaf.URIs, identity.ExplainCA(err, state.PeerCertificates, t.domain, t.back)
}

// ReadCA reads a file with the certificates of the cluster CA.
func ReadCA(file string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.File(err, "cannot read the CA's certificates", "Give the file with --ca.")
	}
	var der [][]byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			der = append(der, block.Bytes)
		}
	}
	certificates, err := parseCA(der)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, file+" does not hold a cluster's CA", "Give the file with --ca.")
	}
	return certificates, nil
}

// parseCA parses certificates, at least one.
func parseCA(der [][]byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for _, one := range der {
		certificate, err := x509.ParseCertificate(one)
		if err != nil {
			return nil, err
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return certificates, nil
}
