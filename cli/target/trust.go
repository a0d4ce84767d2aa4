package target

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/identity"
)

// trust is whom the caller believes and by what it proves itself.
type trust struct {
	ca     *x509.CertPool
	domain string
	owner  ed25519.PrivateKey
}

func newTrust(certificates []*x509.Certificate, owner ed25519.PrivateKey) (*trust, error) {
	t := &trust{ca: x509.NewCertPool(), owner: owner}
	for _, certificate := range certificates {
		for _, uri := range certificate.URIs {
			if uri.Scheme != "spiffe" {
				continue
			}
			if t.domain != "" && t.domain != uri.Host {
				return nil, fmt.Errorf("the CA certificates name two trust domains, %s and %s", t.domain, uri.Host)
			}
			t.domain = uri.Host
		}
		t.ca.AddCert(certificate)
	}
	if t.domain == "" {
		return nil, errors.New("no CA certificate names a trust domain (a spiffe:// URI): it is not that of a cluster")
	}
	return t, nil
}

// curator is how the caller speaks to a curator.
func (t *trust) curator() *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              t.ca,
		ServerName:           identity.CuratorName(t.domain),
		GetClientCertificate: t.prove,
	}
}

// node is how the caller speaks to the own API of a node: its certificate has no DNS name but its SPIFFE ID, which is what is verified.
func (t *trust) node(nodeID string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The verification that is left out here is the one of the DNS name; VerifyConnection does the rest.
		InsecureSkipVerify:   true,
		VerifyConnection:     func(state tls.ConnectionState) error { return t.verifyNode(state, nodeID) },
		GetClientCertificate: t.prove,
	}
}

func (t *trust) verifyNode(state tls.ConnectionState, nodeID string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the node shows no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:         t.ca,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return err
	}
	want := identity.NodeURI(t.domain, nodeID).String()
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != want {
		return fmt.Errorf("the certificate is for %v, not for %s", leaf.URIs, want)
	}
	return nil
}

// prove makes a certificate of the owner key for one handshake.
func (t *trust) prove(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	certificate, err := identity.SelfSigned(t.owner, time.Now())
	return &certificate, err
}

// readOwnerKey reads a file with the owner's key.
func readOwnerKey(file string) (ed25519.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fileFault(err, "the owner key cannot be read", "Give the file with --owner-key.")
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fault.New(fault.Usage, file+" holds no PEM block PRIVATE KEY", "The owner key is an Ed25519 key in PKCS #8.")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// The error of the parser is left out: it could quote the key.
		return nil, fault.New(fault.Usage, file+" holds a PRIVATE KEY that cannot be parsed", "The owner key is an Ed25519 key in PKCS #8.")
	}
	owner, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fault.New(fault.Usage, fmt.Sprintf("%s holds a %T", file, key), "The owner key is an Ed25519 key in PKCS #8.")
	}
	return owner, nil
}

// readCA reads a file with the certificates of the cluster CA.
func readCA(file string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fileFault(err, "the CA's certificates cannot be read", "Give the file with --ca.")
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

func fileFault(err error, what, next string) error {
	code := fault.Failed
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		code = fault.Refused
	}
	return fault.Wrap(code, err, what, next)
}
