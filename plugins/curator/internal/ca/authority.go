package ca

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/snapshot"
)

const (
	// NodeLifetime bounds for how long a stolen node or curator key is worth something to one who cannot reach the cluster.
	NodeLifetime = 24 * time.Hour
	clockSkew    = identity.ClockSkew
	// sessionSkew is by how much the clocks of two curators may differ for a certificate of one to be good for the other at once. It is short, since
	// such a certificate is worth an operator's powers.
	sessionSkew = time.Minute
)

// noEnd is the end of a certificate that has none (RFC 5280, 4.1.2.5). The root is what nodes keep to know their cluster by: a cluster that was off for however
// long must come back, and one with an end could not even tell its nodes another. It is replaced by adding another one.
func noEnd() time.Time { return time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC) }

// Authority signs for one cluster.
type Authority struct {
	trustDomain string
	key         crypto.Signer
	certificate *x509.Certificate
}

// Create makes a new root for a trust domain.
func Create(trustDomain string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cluster CA: make a key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "Reeve cluster CA " + trustDomain},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              noEnd(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		URIs:                  []*url.URL{identity.ClusterURI(trustDomain)},
	}
	certificate, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{trustDomain: trustDomain, key: key, certificate: certificate}, nil
}

// Open returns the authority with a stored key (PKCS #8) and certificate (DER).
func Open(key, certificate []byte) (*Authority, error) {
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("cluster CA: stored certificate: %w", err)
	}
	if len(parsed.URIs) != 1 || parsed.URIs[0].Scheme != "spiffe" || parsed.URIs[0].Path != "" {
		return nil, errors.New("cluster CA: the stored certificate names no trust domain")
	}
	private, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		// What is wrong with a key is not told: it could say what is in it.
		return nil, errors.New("cluster CA: the stored key cannot be read")
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, errors.New("cluster CA: the stored key cannot sign")
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(parsed.PublicKey) {
		return nil, errors.New("cluster CA: the stored key is not that of the stored certificate")
	}
	return &Authority{trustDomain: parsed.URIs[0].Host, key: signer, certificate: parsed}, nil
}

// Keys is where the authority is kept: a *store.Store.
type Keys interface {
	// ReadSigningKey reads the private key, PKCS #8, and the certificate that it belongs to, DER.
	ReadSigningKey(ctx context.Context) (key, certificate []byte, err error)
}

// Load opens the authority that is kept.
func Load(ctx context.Context, keys Keys) (*Authority, error) {
	key, certificate, err := keys.ReadSigningKey(ctx)
	if err != nil {
		return nil, err
	}
	return Open(key, certificate)
}

// Key returns the private key, PKCS #8.
func (a *Authority) Key() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, errors.New("cluster CA: the key cannot be written")
	}
	return key, nil
}

// Certificate returns the certificate, DER.
func (a *Authority) Certificate() []byte { return a.certificate.Raw }

// TrustDomain returns the trust domain that the authority signs for.
func (a *Authority) TrustDomain() string { return a.trustDomain }

// IssueNode issues an SVID of a node for its node key: leaf first, DER. It is good as a client's and as a server's certificate, from an hour
// ago (clocks differ) for 24 hours.
func (a *Authority) IssueNode(key ed25519.PublicKey, now time.Time) ([][]byte, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("cluster CA: the key of a node has %d bytes in place of %d", len(key), ed25519.PublicKeySize)
	}
	id := identity.NodeID(key)
	leaf, err := a.issueSVID(identity.NodeURI(a.trustDomain, id), pkix.Name{CommonName: id}, nil, key, now)
	if err != nil {
		return nil, err
	}
	return [][]byte{leaf.Raw}, nil
}

// IssueCurator issues the certificate with which a curator serves, with a new key: the SVID of its role, which also carries the DNS name
// that only curators have. The root follows it, so that a machine which knows no more of the cluster than a ticket's pins finds it there.
func (a *Authority) IssueCurator(nodeID, role string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cluster CA: make a key: %w", err)
	}
	leaf, err := a.issueSVID(identity.RoleURI(a.trustDomain, nodeID, role), pkix.Name{CommonName: role + " of " + nodeID},
		[]string{identity.CuratorName(a.trustDomain)}, key.Public(), now)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw, a.certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// IssueSession issues the certificate of a person's session for a key of the person's own making: leaf first, DER. It is good as a client's
// certificate only, from a minute ago until notAfter, or until the session or the CA ends, if that is sooner.
func (a *Authority) IssueSession(session identity.Session, key ed25519.PublicKey, now, notAfter time.Time) ([][]byte, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("cluster CA: the key of a session has %d bytes in place of %d", len(key), ed25519.PublicKeySize)
	}
	name := session.Operator
	if name == "" {
		name = "owner"
	}
	if notAfter.After(session.Ends) {
		notAfter = session.Ends
	}
	leaf, err := a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   now.Add(-sessionSkew),
		NotAfter:    notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{identity.SessionURI(a.trustDomain, session)},
	}, key, now)
	if err != nil {
		return nil, err
	}
	return [][]byte{leaf.Raw}, nil
}

// SignSnapshot signs the manifest of a snapshot of the store, and returns the header of its file.
func (a *Authority) SignSnapshot(manifest []byte) (*snapshot.Header, error) {
	return snapshot.Sign(manifest, a.certificate.Raw, a.key)
}

func (a *Authority) issueSVID(id *url.URL, subject pkix.Name, names []string, key crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	return a.issue(&x509.Certificate{
		Subject:     subject,
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(NodeLifetime),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{id},
		DNSNames:    names,
	}, key, now)
}

// ClockError says that the CA can sign nothing at the time that this machine's clock shows. It passes when the clock is set right.
type ClockError struct {
	// Now is what the clock says; From and End are when the CA's certificate is valid.
	Now, From, End time.Time
}

func (e *ClockError) Error() string {
	how := "before the certificate of the cluster CA is valid (from " + e.From.UTC().Format(time.RFC3339)
	if e.Now.After(e.From) {
		how = "after the certificate of the cluster CA ended (valid until " + e.End.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("cluster CA: nothing can be signed, since this machine's clock says %s, which is %s): set the clock right, and it goes on by itself",
		e.Now.UTC().Format(time.RFC3339), how)
}

// issue signs a leaf.
func (a *Authority) issue(leaf *x509.Certificate, key crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	if now.Before(a.certificate.NotBefore) || !now.Before(a.certificate.NotAfter) {
		return nil, &ClockError{Now: now, From: a.certificate.NotBefore, End: a.certificate.NotAfter}
	}
	// A leaf that outlives its root would be refused without a word that helps.
	if leaf.NotAfter.After(a.certificate.NotAfter) {
		leaf.NotAfter = a.certificate.NotAfter
	}
	if !leaf.NotAfter.After(now) {
		return nil, fmt.Errorf("cluster CA: what was to be issued ended at %s", leaf.NotAfter.Format(time.RFC3339))
	}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.BasicConstraintsValid = true
	return sign(leaf, a.certificate, key, a.key)
}

func sign(template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, fmt.Errorf("cluster CA: sign: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cluster CA: read what was signed: %w", err)
	}
	return certificate, nil
}
