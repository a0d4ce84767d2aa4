package ca_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

const trustDomain = "test.reeve"

// keys is where a test keeps an authority.
type keys struct {
	authority *ca.Authority
	err       error
	reads     int
}

func (k *keys) ReadSigningKey(context.Context) (key, certificate []byte, err error) {
	k.reads++
	if k.err != nil {
		return nil, nil, k.err
	}
	key, err = k.authority.Key()
	return key, k.authority.Certificate(), err
}

func create(t *testing.T, now time.Time) *ca.Authority {
	t.Helper()
	authority, err := ca.Create(trustDomain, now)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func root(t *testing.T, authority *ca.Authority) *x509.Certificate {
	t.Helper()
	certificate, err := x509.ParseCertificate(authority.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func newKey(t *testing.T) ed25519.PublicKey {
	t.Helper()
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestRoot(t *testing.T) {
	now := time.Now()
	certificate := root(t, create(t, now))
	if !certificate.IsCA || !certificate.MaxPathLenZero || certificate.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("it cannot sign leaves and only leaves: %+v", certificate)
	}
	if len(certificate.URIs) != 1 || certificate.URIs[0].String() != "spiffe://test.reeve" {
		t.Errorf("URIs: %v", certificate.URIs)
	}
	if certificate.NotAfter.Year() != 9999 || !certificate.NotBefore.Before(now) {
		t.Errorf("it lives from %s to %s", certificate.NotBefore, certificate.NotAfter)
	}
	if _, ok := certificate.PublicKey.(*ecdsa.PublicKey); !ok {
		t.Errorf("its key is a %T", certificate.PublicKey)
	}
}

// The SVIDs are what the SPIFFE library of others takes for such.
func TestNodeSVID(t *testing.T) {
	now := time.Now()
	authority := create(t, now)
	key := newKey(t)
	chain, err := authority.IssueNode(key, now)
	if err != nil {
		t.Fatal(err)
	}
	bundle := x509bundle.FromX509Authorities(spiffeid.RequireTrustDomainFromString(trustDomain), []*x509.Certificate{root(t, authority)})
	id, _, err := x509svid.ParseAndVerify(chain, bundle)
	if err != nil {
		t.Fatal(err)
	}
	if id.String() != "spiffe://test.reeve/node/"+identity.NodeID(key) {
		t.Errorf("it is for %s", id)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if !key.Equal(leaf.PublicKey) || len(leaf.DNSNames) != 0 || leaf.IsCA {
		t.Errorf("it carries %v, %q, CA %v", leaf.PublicKey, leaf.DNSNames, leaf.IsCA)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root(t, authority))
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("usage %v: %v", usage, err)
		}
	}
	for _, at := range []struct {
		age  time.Duration
		good bool
	}{{-30 * time.Minute, true}, {23 * time.Hour, true}, {25 * time.Hour, false}} {
		_, _, err := x509svid.ParseAndVerify(chain, bundle, x509svid.WithTime(now.Add(at.age)))
		if (err == nil) != at.good {
			t.Errorf("at the age of %v: %v", at.age, err)
		}
	}
	if _, err := authority.IssueNode(key[:31], now); err == nil {
		t.Error("an SVID for a key that is none")
	}
}

func TestAuthorityIsKept(t *testing.T) {
	now := time.Now()
	kept := create(t, now)
	opened, err := ca.Load(t.Context(), &keys{authority: kept})
	if err != nil {
		t.Fatal(err)
	}
	if opened.TrustDomain() != trustDomain {
		t.Errorf("trust domain %q", opened.TrustDomain())
	}
	chain, err := opened.IssueNode(newKey(t), now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.CheckSignatureFrom(root(t, kept)); err != nil {
		t.Error(err)
	}
	key, err := kept.Key()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Open(key, create(t, now).Certificate()); err == nil {
		t.Error("a key with another one's certificate is accepted")
	}
	if _, err := ca.Open([]byte("nonsense"), kept.Certificate()); err == nil {
		t.Error("nonsense is accepted as a key")
	}
	if _, err := ca.Open(key, chain[0]); err == nil {
		t.Error("a leaf is accepted as a root")
	}
}

func TestEndOfTheRoot(t *testing.T) {
	now := time.Now()
	authority := create(t, now)
	end := root(t, authority).NotAfter
	chain, err := authority.IssueNode(newKey(t), end.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if leaf.NotAfter.After(end) {
		t.Error("the SVID outlives the root")
	}
	if _, err := authority.IssueNode(newKey(t), end.Add(time.Hour)); err == nil {
		t.Error("a root that has ended still signs")
	}
}

// handshake returns the certificate that a handshake shows.
func handshake(t *testing.T, serving *ca.Serving, authority *ca.Authority, now time.Time) (*x509.Certificate, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	server := tls.Server(theirs, &tls.Config{GetCertificate: serving.GetCertificate})
	served := make(chan error, 1)
	go func() { served <- server.Handshake() }()
	pool := x509.NewCertPool()
	pool.AddCert(root(t, authority))
	client := tls.Client(ours, &tls.Config{
		RootCAs: pool, ServerName: identity.CuratorName(trustDomain), Time: func() time.Time { return now },
	})
	err := client.Handshake()
	if err != nil {
		ours.Close()
		<-served //nolint:errcheck // the client has told why
		return nil, err
	}
	if err := <-served; err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

func TestServing(t *testing.T) {
	began := time.Now()
	now := began
	k := &keys{authority: create(t, began)}
	serving, err := ca.NewServing(t.Context(), k, "reeve-01", "api", func() time.Time { return now }, nil)
	if err != nil {
		t.Fatal(err)
	}
	show := func(age time.Duration) *x509.Certificate {
		t.Helper()
		now = began.Add(age)
		certificate, err := handshake(t, serving, k.authority, now)
		if err != nil {
			t.Fatalf("at the age of %v: %v", age, err)
		}
		return certificate
	}
	first := show(0)
	if len(first.URIs) != 1 || first.URIs[0].String() != "spiffe://test.reeve/node/reeve-01/role/api" {
		t.Errorf("URIs: %v", first.URIs)
	}
	if again := show(11 * time.Hour); !again.Equal(first) || k.reads != 1 {
		t.Errorf("it was renewed before half of its life (%d reads)", k.reads)
	}
	second := show(13 * time.Hour)
	if second.Equal(first) {
		t.Error("it was not renewed after half of its life")
	}
	// The store is away: what is there serves while it is valid, and not longer.
	k.err = errors.New("away")
	if again := show(36 * time.Hour); !again.Equal(second) {
		t.Error("another certificate without the CA's key")
	}
	now = began.Add(38 * time.Hour)
	if _, err := handshake(t, serving, k.authority, now); err == nil {
		t.Error("a certificate that has ended is still shown")
	}
	k.err = nil
	if third := show(39 * time.Hour); third.Equal(second) {
		t.Error("it was not renewed when the store came back")
	}
}

// When another root signs, the next handshake shows that, and not the next renewal.
func TestServingFollows(t *testing.T) {
	now := time.Now()
	k := &keys{authority: create(t, now)}
	var told [][]byte
	serving, err := ca.NewServing(t.Context(), k, "reeve-01", "api", time.Now, func(_ context.Context, certificate []byte, lifetime time.Duration) {
		if told = append(told, certificate); lifetime < 23*time.Hour || lifetime > 24*time.Hour {
			t.Errorf("it lives for %v", lifetime)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := serving.Follow(t.Context(), k.authority.Certificate()); changed || err != nil || k.reads != 1 {
		t.Errorf("%v, %v, %d reads", changed, err, k.reads)
	}
	k.authority = create(t, now)
	next := k.authority.Certificate()
	k.err = errors.New("away")
	if changed, err := serving.Follow(t.Context(), next); changed || !errors.Is(err, k.err) {
		t.Errorf("%v, %v", changed, err)
	}
	k.err = nil
	if changed, err := serving.Follow(t.Context(), next); !changed || err != nil {
		t.Errorf("%v, %v", changed, err)
	}
	shown, err := handshake(t, serving, k.authority, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || string(told[1]) != string(shown.Raw) {
		t.Errorf("%d certificates were told of", len(told))
	}
}

func TestServingNeedsAFirst(t *testing.T) {
	away := errors.New("away")
	if _, err := ca.NewServing(t.Context(), &keys{err: away}, "reeve-01", "api", time.Now, nil); !errors.Is(err, away) {
		t.Errorf("NewServing: %v", err)
	}
}

// A clock that is before the root keeps a curator from serving, not from being there when it is right.
func TestServingBeforeTheRoot(t *testing.T) {
	began := time.Now()
	k := &keys{authority: create(t, began)}
	now := time.Unix(60, 0)
	serving, err := ca.NewServing(t.Context(), k, "reeve-01", "api", func() time.Time { return now }, nil)
	if err != nil {
		t.Fatal(err)
	}
	var clock *ca.ClockError
	if _, err := serving.GetCertificate(new(tls.ClientHelloInfo)); !errors.As(err, &clock) || !clock.Now.Equal(now) {
		t.Errorf("error %v", err)
	}
	now = began
	if _, err := handshake(t, serving, k.authority, now); err != nil {
		t.Errorf("with the right time: %v", err)
	}
}

// A cluster that was off for as long as anybody cares comes back, and what was issued while the clock was ahead is not shown when it is right.
func TestServingAtAnyTime(t *testing.T) {
	began := time.Now()
	k := &keys{authority: create(t, began)}
	now := began
	serving, err := ca.NewServing(t.Context(), k, "reeve-01", "api", func() time.Time { return now }, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{began.AddDate(100, 0, 0), began, began.Add(9 * time.Hour), began, began.AddDate(1, 0, 0), began.Add(-30 * time.Minute)} {
		now = at
		if _, err := handshake(t, serving, k.authority, now); err != nil {
			t.Errorf("with the clock at %s: %v", now, err)
		}
	}
}
