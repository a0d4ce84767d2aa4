package identity_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

func TestNames(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	const node = "reeve-3b6a27bcceb6a42d62a3a8d02a6f0d73"
	domain := identity.TrustDomain("c0ffee")
	for got, want := range map[string]string{
		identity.NodeID(key):                               node,
		domain:                                             "c0ffee.reeve",
		identity.ClusterURI(domain).String():               "spiffe://c0ffee.reeve",
		identity.NodeURI(domain, node).String():            "spiffe://c0ffee.reeve/node/" + node,
		identity.RoleURI(domain, node, "curator").String(): "spiffe://c0ffee.reeve/node/" + node + "/role/curator",
		identity.CuratorName(domain):                       "curator.c0ffee.reeve",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "a1", "kubernetes-pki", "a--b", strings.Repeat("a", 32)} {
		if !identity.ValidName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", "-", "1", "1a", "-a", "a-", "A", "a_b", "a.b", "a/b", "../a", "a b", "a\n", "\na", "ä", strings.Repeat("a", 33)} {
		if identity.ValidName(name) {
			t.Errorf("%q is accepted", name)
		}
	}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSelfSignedProvesItsKey(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key := newKey(t)
	certificate, err := identity.SelfSigned(key, now)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := identity.PinnedKey(certificate.Leaf)
	if err != nil {
		t.Fatal(err)
	}
	if !pinned.Equal(key.Public()) {
		t.Error("the certificate proves another key")
	}
	leaf := certificate.Leaf
	if leaf.IsCA || leaf.NotBefore.After(now.Add(-time.Hour)) || leaf.NotAfter.Before(now.Add(time.Hour)) || leaf.NotAfter.Sub(leaf.NotBefore) > 3*time.Hour {
		t.Errorf("CA %t, valid from %s to %s", leaf.IsCA, leaf.NotBefore, leaf.NotAfter)
	}
	again, err := identity.SelfSigned(key, now)
	if err != nil {
		t.Fatal(err)
	}
	if again.Leaf.SerialNumber.Cmp(leaf.SerialNumber) == 0 {
		t.Error("two certificates have the same serial number")
	}
}

func TestSelfSignedRefusesWhatIsNoKey(t *testing.T) {
	for _, key := range []ed25519.PrivateKey{nil, newKey(t)[:32]} {
		if _, err := identity.SelfSigned(key, time.Now()); err == nil {
			t.Errorf("a key of %d bytes was accepted", len(key))
		}
	}
}

// The holder of a key proves it in a handshake, whatever the time is; somebody else with a copy of the certificate does not.
func TestHandshake(t *testing.T) {
	owner := newKey(t)
	server, err := identity.SelfSigned(newKey(t), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	handshake := func(client tls.Certificate) (ed25519.PublicKey, error) {
		clientEnd, serverEnd := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = tls.Client(clientEnd, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{client}}).Handshake()
			_ = clientEnd.Close()
		}()
		connection := tls.Server(serverEnd, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13})
		err := connection.Handshake()
		defer func() {
			_ = serverEnd.Close()
			<-ended
		}()
		if err != nil {
			return nil, err
		}
		return identity.PinnedKey(connection.ConnectionState().PeerCertificates[0])
	}
	// Made a year ago by the client's clock.
	certificate, err := identity.SelfSigned(owner, time.Now().AddDate(-1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if key, err := handshake(certificate); err != nil || !key.Equal(owner.Public()) {
		t.Errorf("the owner: %x, %v", key, err)
	}
	stolen := tls.Certificate{Certificate: certificate.Certificate, PrivateKey: newKey(t)}
	if key, err := handshake(stolen); err == nil {
		t.Errorf("a thief of the certificate is taken for %x", key)
	}
}

func TestPinnedKeyRefuses(t *testing.T) {
	authority, subject := newKey(t), newKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(public, signer any) *x509.Certificate {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, signer)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	if key, err := identity.PinnedKey(certificate(subject.Public(), authority)); err == nil {
		t.Errorf("a certificate that another key has signed proves %x", key)
	}
	if _, err := identity.PinnedKey(certificate(rsaKey.Public(), rsaKey)); err == nil || !strings.Contains(err.Error(), "RSA") {
		t.Errorf("an RSA certificate: %v", err)
	}
}
