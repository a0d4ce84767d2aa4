package cluster_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	names "github.com/reeveproject/reeve/proto/identity"
)

const clusterID = "0123456789abcdef"

var trustDomain = names.TrustDomain(clusterID)

// authority is a cluster CA.
type authority struct {
	t           *testing.T
	key         ed25519.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	a.certificate = sign(t, &x509.Certificate{
		URIs:                  []*url.URL{names.ClusterURI(trustDomain)},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(1000 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil, a.key.Public(), a.key)
	return a
}

// issue makes a leaf for key, valid from now-age to now+remaining.
func (a *authority) issue(key ed25519.PrivateKey, uri *url.URL, dns []string, age, remaining time.Duration) *tls.Certificate {
	a.t.Helper()
	leaf := sign(a.t, &x509.Certificate{
		URIs:        []*url.URL{uri},
		DNSNames:    dns,
		NotBefore:   time.Now().Add(-age),
		NotAfter:    time.Now().Add(remaining),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.certificate, key.Public(), a.key)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// svid makes a node's SVID.
func (a *authority) svid(key ed25519.PrivateKey, age, remaining time.Duration) *tls.Certificate {
	return a.issue(key, names.NodeURI(trustDomain, nodeID(key)), nil, age, remaining)
}

// curatorCertificate makes what a curator serves with.
func (a *authority) curatorCertificate() *tls.Certificate {
	return a.issue(newKey(a.t), names.RoleURI(trustDomain, "reeve-00", "curator"), []string{names.CuratorName(trustDomain)}, time.Hour, 900*time.Hour)
}

// node makes the identity of a node of the cluster.
func (a *authority) node(key ed25519.PrivateKey, svid *tls.Certificate) *identity.Identity {
	return &identity.Identity{
		NodeID:      nodeID(key),
		Key:         key,
		ClusterID:   clusterID,
		TrustDomain: trustDomain,
		CA:          []*x509.Certificate{a.certificate},
		SVID:        svid,
	}
}

func sign(t *testing.T, template, parent *x509.Certificate, public any, key ed25519.PrivateKey) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func nodeID(key ed25519.PrivateKey) string { return names.NodeID(key.Public().(ed25519.PublicKey)) }
