package role

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/identity"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// trust verifies certificates of the cluster. It is never changed.
type trust struct {
	domain string
	roots  *x509.CertPool
	// certificates are those in roots.
	certificates []*x509.Certificate
	// signs is the certificate of the CA that signs now, the first one.
	signs *x509.Certificate
}

func trustOf(message *hostv1.WatchTrustResponse) (*trust, error) {
	t := &trust{domain: message.GetTrustDomain(), roots: x509.NewCertPool()}
	if t.domain == "" || len(message.GetCaCertificates()) == 0 {
		return nil, errors.New("there is no trust domain, or no certificate of it")
	}
	for n, der := range message.GetCaCertificates() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n+1, err)
		}
		t.certificates = append(t.certificates, certificate)
		if t.roots.AddCert(certificate); t.signs == nil {
			t.signs = certificate
		}
	}
	return t, nil
}

// verify verifies a chain of certificates, leaf first, and returns the instance that it belongs to.
func (t *trust) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (Peer, error) {
	if len(chain) == 0 {
		return Peer{}, errors.New("there is no certificate")
	}
	between := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		between.AddCert(certificate)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: t.roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return Peer{}, err
	}
	return peerOf(chain[0], t.domain)
}

// peerOf returns the instance of an SVID: exactly one URI, of a role on a node of this trust domain, in canonical form.
func peerOf(leaf *x509.Certificate, domain string) (Peer, error) {
	if leaf.IsCA || len(leaf.URIs) != 1 {
		return Peer{}, fmt.Errorf("the certificate of %q is not an SVID: it has %d URIs", leaf.Subject, len(leaf.URIs))
	}
	id := leaf.URIs[0].String()
	if host := leaf.URIs[0].Host; host != domain {
		return Peer{}, fmt.Errorf("%q is in the trust domain %q, not in %s", id, host, domain)
	}
	node, role, ok := strings.Cut(strings.TrimPrefix(leaf.URIs[0].Path, "/node/"), "/role/")
	if !ok || node == "" || strings.Contains(node, "/") || !identity.ValidName(role) || id != identity.RoleURI(domain, node, role).String() {
		return Peer{}, fmt.Errorf("%q is not the identity of a role on a node", id)
	}
	return Peer{NodeID: node, Role: role}, nil
}
