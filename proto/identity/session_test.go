package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

const (
	domain     = "c0ffee.reeve"
	operatorID = "00112233445566778899aabbccddeeff"
)

var (
	atNoon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ends   = atNoon.Add(8 * time.Hour)
)

// testAuthority is a cluster CA.
type testAuthority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t testing.TB, parent *testAuthority) *testAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &testAuthority{key: key}
	if parent == nil {
		parent = a
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: atNoon.AddDate(-1, 0, 0), NotAfter: atNoon.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{identity.ClusterURI(domain)},
	}
	if parent == a {
		a.certificate = template
	}
	a.certificate = sign(t, template, parent.certificate, key.Public(), parent.key)
	return a
}

func sign(t testing.TB, template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// issue issues the certificate of a session for an hour from noon, changed as a test wants it.
func (a *testAuthority) issue(t testing.TB, session identity.Session, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: atNoon.Add(-time.Minute), NotAfter: atNoon.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
		URIs: []*url.URL{identity.SessionURI(domain, session)},
	}
	if change != nil {
		change(template)
	}
	return sign(t, template, a.certificate, key, a.key)
}

func TestSessionURI(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	id := identity.OwnerKeyID(key)
	if id != "3b6a27bcceb6a42d62a3a8d02a6f0d73" {
		t.Errorf("the ID of the owner key is %s", id)
	}
	for want, session := range map[string]identity.Session{
		"spiffe://c0ffee.reeve/owner/" + id + "/1767384000":                    {ID: id, Ends: ends},
		"spiffe://c0ffee.reeve/operator/alice/" + operatorID + "/1767384000":   {Operator: "alice", ID: operatorID, Ends: ends.Add(999 * time.Millisecond)},
		"spiffe://c0ffee.reeve/operator/owner-2/" + operatorID + "/1767384000": {Operator: "owner-2", ID: operatorID, Ends: ends},
	} {
		uri := identity.SessionURI(domain, session)
		if uri.String() != want {
			t.Errorf("%+v: %s", session, uri)
		}
		got, err := identity.SessionOf(&x509.Certificate{URIs: []*url.URL{uri}})
		session.Ends = session.Ends.Truncate(time.Second)
		if err != nil || got.Operator != session.Operator || got.ID != session.ID || !got.Ends.Equal(session.Ends) {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
	}
}

func TestNoSession(t *testing.T) {
	good := "spiffe://c0ffee.reeve/operator/alice/" + operatorID + "/1767384000"
	uris := func(texts ...string) (uris []*url.URL) {
		for _, text := range texts {
			uri, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			uris = append(uris, uri)
		}
		return uris
	}
	if _, err := identity.SessionOf(&x509.Certificate{URIs: uris(good)}); err != nil {
		t.Fatal(err)
	}
	for name, certificate := range map[string]*x509.Certificate{
		"no name":                 {},
		"two names":               {URIs: uris(good, good)},
		"another scheme":          {URIs: uris(strings.Replace(good, "spiffe", "https", 1))},
		"a scheme in capitals":    {URIs: []*url.URL{{Scheme: "SPIFFE", Host: domain, Path: strings.TrimPrefix(good, "spiffe://c0ffee.reeve")}}},
		"no trust domain":         {URIs: uris(strings.Replace(good, domain, "", 1))},
		"a port":                  {URIs: uris(strings.Replace(good, domain, domain+":1", 1))},
		"a user":                  {URIs: uris(strings.Replace(good, domain, "alice@"+domain, 1))},
		"a query":                 {URIs: uris(good + "?a=b")},
		"an empty query":          {URIs: uris(good + "?")},
		"a fragment":              {URIs: uris(good + "#a")},
		"a letter escaped":        {URIs: uris(strings.Replace(good, "alice", "%61lice", 1))},
		"a slash escaped":         {URIs: uris(strings.Replace(good, "alice/", "alice%2f", 1))},
		"a zero before the end":   {URIs: uris(strings.Replace(good, "/1767", "/01767", 1))},
		"an end beyond all ends":  {URIs: uris(good + "000000")},
		"no end":                  {URIs: uris(strings.TrimSuffix(good, "/1767384000"))},
		"more after the end":      {URIs: uris(good + "/x")},
		"no operator":             {URIs: uris(strings.Replace(good, "/alice", "", 1))},
		"a name that is none":     {URIs: uris(strings.Replace(good, "alice", "alice-", 1))},
		"a name in capitals":      {URIs: uris(strings.Replace(good, "alice", "Alice", 1))},
		"an ID that is none":      {URIs: uris(strings.Replace(good, operatorID, "alice", 1))},
		"a node":                  {URIs: []*url.URL{identity.NodeURI(domain, "reeve-"+operatorID)}},
		"a role":                  {URIs: []*url.URL{identity.RoleURI(domain, "reeve-"+operatorID, "owner")}},
		"the cluster":             {URIs: []*url.URL{identity.ClusterURI(domain)}},
		"a new line at the end":   {URIs: []*url.URL{{Scheme: "spiffe", Host: domain, Path: strings.TrimPrefix(good, "spiffe://c0ffee.reeve") + "\n"}}},
		"an opaque name":          {URIs: []*url.URL{{Scheme: "spiffe", Opaque: "x", Path: strings.TrimPrefix(good, "spiffe://c0ffee.reeve")}}},
		"a DNS name in its place": {DNSNames: []string{good}},
	} {
		if session, err := identity.SessionOf(certificate); !errors.Is(err, identity.ErrNoSession) {
			t.Errorf("%s: %+v, %v", name, session, err)
		}
	}
}

func TestVerifySession(t *testing.T) {
	ca, foreign := newAuthority(t, nil), newAuthority(t, nil)
	operator := identity.Session{Operator: "alice", ID: operatorID, Ends: ends}
	owner := identity.Session{ID: operatorID, Ends: ends}
	roots := []*x509.Certificate{foreign.certificate, ca.certificate}
	for _, session := range []identity.Session{operator, owner} {
		got, err := identity.VerifySession([]*x509.Certificate{ca.issue(t, session, nil)}, roots, domain, atNoon)
		if err != nil || got.Operator != session.Operator || got.ID != session.ID || !got.Ends.Equal(ends) {
			t.Errorf("%+v: %+v, %v", session, got, err)
		}
	}
	intermediate := newAuthority(t, ca)
	if _, err := identity.VerifySession([]*x509.Certificate{intermediate.issue(t, operator, nil), intermediate.certificate}, roots, domain, atNoon); err != nil {
		t.Errorf("by way of another authority: %v", err)
	}

	ours := []*x509.Certificate{ca.certificate}
	_, selfKey, _ := ed25519.GenerateKey(rand.Reader)
	selfSigned := &x509.Certificate{
		SerialNumber: big.NewInt(3), NotBefore: atNoon, NotAfter: ends, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{identity.SessionURI(domain, operator)},
	}
	for name, test := range map[string]struct {
		chain []*x509.Certificate
		roots []*x509.Certificate
		at    time.Time
		says  string
	}{
		"of a foreign CA":                {[]*x509.Certificate{foreign.issue(t, operator, nil)}, ours, atNoon, "unknown authority"},
		"of a foreign CA that it brings": {[]*x509.Certificate{foreign.issue(t, operator, nil), foreign.certificate}, ours, atNoon, "unknown authority"},
		"self-signed":                    {[]*x509.Certificate{sign(t, selfSigned, selfSigned, selfKey.Public(), selfKey)}, ours, atNoon, "unknown authority"},
		"no roots":                       {[]*x509.Certificate{ca.issue(t, operator, nil)}, nil, atNoon, "unknown authority"},
		"before it is valid":             {[]*x509.Certificate{ca.issue(t, operator, nil)}, ours, atNoon.Add(-2 * time.Minute), "not yet valid"},
		"after it was valid":             {[]*x509.Certificate{ca.issue(t, operator, nil)}, ours, atNoon.Add(61 * time.Minute), "expired"},
		"for servers": {[]*x509.Certificate{ca.issue(t, operator, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})}, ours, atNoon, "usage"},
		"of another cluster": {[]*x509.Certificate{ca.issue(t, operator, func(c *x509.Certificate) {
			c.URIs = []*url.URL{identity.SessionURI("other.reeve", operator)}
		})}, ours, atNoon, `"other.reeve"`},
		"an authority": {[]*x509.Certificate{ca.issue(t, operator, func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign
		})}, ours, atNoon, "authority"},
		"longer than its session": {[]*x509.Certificate{ca.issue(t, identity.Session{ID: operatorID, Ends: atNoon.Add(59 * time.Minute)}, nil)}, ours, atNoon, "longer than its session"},
		"at the end of its session": {[]*x509.Certificate{ca.issue(t, identity.Session{ID: operatorID, Ends: atNoon.Add(time.Hour)}, nil)}, ours,
			atNoon.Add(time.Hour), "the session ended at 2026-01-02T13:00:00Z"},
	} {
		if session, err := identity.VerifySession(test.chain, test.roots, domain, test.at); err == nil || !strings.Contains(err.Error(), test.says) || errors.Is(err, identity.ErrNoSession) {
			t.Errorf("%s: %+v, %v", name, session, err)
		}
	}
	for name, chain := range map[string][]*x509.Certificate{
		"nothing": nil,
		"a node's": {ca.issue(t, operator, func(c *x509.Certificate) {
			c.URIs = []*url.URL{identity.NodeURI(domain, "reeve-"+operatorID)}
		})},
		"the CA's own": {ca.certificate},
	} {
		if session, err := identity.VerifySession(chain, roots, domain, atNoon); !errors.Is(err, identity.ErrNoSession) {
			t.Errorf("%s: %+v, %v", name, session, err)
		}
	}
}

// FuzzSessionOf reads what anybody may show in a handshake: what is taken for a session is written as the very name that was read.
func FuzzSessionOf(f *testing.F) {
	f.Fuzz(func(t *testing.T, der []byte) {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		session, err := identity.SessionOf(certificate)
		if err != nil {
			if !errors.Is(err, identity.ErrNoSession) {
				t.Fatalf("another error: %v", err)
			}
			return
		}
		uri := certificate.URIs[0]
		if again := identity.SessionURI(uri.Host, session); again.String() != uri.String() {
			t.Fatalf("%s is read as %+v, which is %s", uri, session, again)
		}
		if session.Operator != "" && !identity.ValidName(session.Operator) {
			t.Fatalf("the operator is %q", session.Operator)
		}
	})
}
