package role

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const testID = "spiffe://test.reeve/node/reeve-01/role/lighthouse"

func testKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed is a certificate of a key, by itself. Without randomness, a signature is the same each time.
func signed(t testing.TB, key *ecdsa.PrivateKey, template *x509.Certificate) []byte {
	t.Helper()
	template.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func uris(t testing.TB, texts ...string) []*url.URL {
	t.Helper()
	var all []*url.URL
	for _, text := range texts {
		parsed, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parsed)
	}
	return all
}

// Only what the cluster writes is the identity of a role.
func TestPeerOfCertificates(t *testing.T) {
	if peer, err := peerOf(&x509.Certificate{URIs: uris(t, testID)}, "test.reeve"); err != nil || peer != (Peer{NodeID: "reeve-01", Role: "lighthouse"}) {
		t.Errorf("%v, %v", peer, err)
	}
	for name, certificate := range map[string]*x509.Certificate{
		"none":           {},
		"two":            {URIs: uris(t, testID, testID)},
		"a CA's":         {IsCA: true, URIs: uris(t, testID)},
		"other domain":   {URIs: uris(t, strings.Replace(testID, "test.reeve", "test2.reeve", 1))},
		"other scheme":   {URIs: uris(t, "https://test.reeve/node/reeve-01/role/lighthouse")},
		"a node":         {URIs: uris(t, "spiffe://test.reeve/node/reeve-01")},
		"an operator":    {URIs: uris(t, "spiffe://test.reeve/operator/alice/x/1")},
		"no node":        {URIs: uris(t, "spiffe://test.reeve/node//role/lighthouse")},
		"more":           {URIs: uris(t, testID+"/x")},
		"a query":        {URIs: uris(t, testID+"?x")},
		"a fragment":     {URIs: uris(t, testID+"#x")},
		"a user":         {URIs: uris(t, strings.Replace(testID, "//", "//user@", 1))},
		"a port":         {URIs: uris(t, strings.Replace(testID, "reeve/", "reeve:1/", 1))},
		"escaped":        {URIs: uris(t, strings.Replace(testID, "node", "%6eode", 1))},
		"role of a role": {URIs: uris(t, "spiffe://test.reeve/node/reeve-01/role/x/role/lighthouse")},
		"capitals":       {URIs: uris(t, strings.Replace(testID, "lighthouse", "Lighthouse", 1))},
	} {
		if peer, err := peerOf(certificate, "test.reeve"); err == nil {
			t.Errorf("%s: it is taken for %v", name, peer)
		}
	}
}

// What was issued is used only if peers would take it.
func TestIssuedSVIDs(t *testing.T) {
	now := time.Now()
	key := testKey(t)
	template := func() *x509.Certificate {
		return &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), URIs: uris(t, testID)}
	}
	made, err := checkSVID([][]byte{signed(t, key, template())}, key, testID, now)
	if err != nil {
		t.Fatal(err)
	}
	// The hour that lies before counts for nothing.
	if in := made.renew.Sub(now); in < 29*time.Minute || in > 40*time.Minute {
		t.Errorf("it is renewed in %s", in)
	}
	late, early, other := template(), template(), template()
	late.NotAfter, early.NotBefore, other.URIs = now.Add(-time.Second), now.Add(time.Minute), uris(t, testID+"2")
	for part, chain := range map[string][][]byte{
		"empty":        nil,
		"malformed":    {[]byte("x")},
		"another key":  {signed(t, testKey(t), template())},
		"clocks":       {signed(t, key, late)},
		"this node's":  {signed(t, key, early)},
		"not for spif": {signed(t, key, other)},
	} {
		if _, err := checkSVID(chain, key, testID, now); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// Instances that were given an SVID at the same moment do not all ask for the next one at the same moment.
func TestRenewalsSpread(t *testing.T) {
	now := time.Now()
	key := testKey(t)
	chain := [][]byte{signed(t, key, &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), URIs: uris(t, testID)})}
	first, last := now.Add(time.Hour), now
	for range 200 {
		made, err := checkSVID(chain, key, testID, now)
		if err != nil {
			t.Fatal(err)
		}
		if made.renew.Before(first) {
			first = made.renew
		}
		if made.renew.After(last) {
			last = made.renew
		}
	}
	if spread := last.Sub(first); spread < 8*time.Minute || last.Sub(now) >= 41*time.Minute {
		t.Errorf("200 renewals are spread over %s, up to %s after the SVID was given", spread, last.Sub(now))
	}
}

// issuer is a core that gives SVIDs of one hour, unless it is away.
type issuer struct {
	hostv1.HostServiceClient
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	away   atomic.Bool
	issued []time.Time
}

func (i *issuer) IssueSVID(_ context.Context, request *hostv1.IssueSVIDRequest, _ ...grpc.CallOption) (*hostv1.IssueSVIDResponse, error) {
	if i.away.Load() {
		return nil, status.Error(codes.Unavailable, "no curator")
	}
	asked, err := x509.ParseCertificateRequest(request.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	i.issued = append(i.issued, now)
	id, _ := url.Parse(testID) // it is well formed
	leaf, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour), URIs: []*url.URL{id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, i.ca, asked.PublicKey, i.key)
	return &hostv1.IssueSVIDResponse{Svid: [][]byte{leaf}}, err
}

// There is a good SVID at every time, although each lasts an hour only. Without a curator the last one is used until it expires, and with a curator there is
// one again within seconds.
func TestRenewalIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := testKey(t)
		root := signed(t, key, &x509.Certificate{
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(1000 * time.Hour), URIs: uris(t, "spiffe://test.reeve"),
		})
		trust, err := trustOf(&hostv1.WatchTrustResponse{TrustDomain: "test.reeve", CaCertificates: [][]byte{root}})
		if err != nil {
			t.Fatal(err)
		}
		core := &issuer{ca: trust.signs, key: key}
		host := &Host{request: &rolev1.StartRequest{NodeId: "reeve-01", Role: "lighthouse"}, log: hclog.NewNullLogger(), client: core, ctx: t.Context()}
		p := &host.prover
		p.host = host
		p.trust.Set(trust)
		go p.run()
		good := func() bool {
			synctest.Wait()
			now, _ := p.svid.Get()
			return now.good(time.Now())
		}
		for minute := range 6 * 60 {
			if !good() {
				t.Fatalf("there is no good SVID after %d min", minute)
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait() // a renewal may be due at this very moment
		for n, at := range core.issued[1:] {
			if after := at.Sub(core.issued[n]); after < 29*time.Minute || after > 41*time.Minute {
				t.Errorf("the SVID %d was renewed after %s", n, after)
			}
		}
		core.away.Store(true)
		last, _ := p.svid.Get()
		time.Sleep(time.Until(last.certificate.Leaf.NotAfter) - time.Second)
		if !good() {
			t.Error("the last SVID is not used until it expires")
		}
		time.Sleep(10 * time.Minute)
		if good() {
			t.Error("an SVID is good that has expired")
		}
		core.away.Store(false)
		time.Sleep(maxRetryWithout)
		if !good() {
			t.Errorf("there is no SVID %s after the core is back", maxRetryWithout)
		}
	})
}

// Every answer but one is a refusal, also one of a later version.
func TestAnswers(t *testing.T) {
	for said, want := range map[answer]string{otherRole: "AllowRoles", notMember: "directory", 0: "unknown code 0", 77: "unknown code 77"} {
		if err := said.refusal(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", said, err)
		}
	}
	if err := admitted.refusal(); err != nil {
		t.Error(err)
	}
}

// The core's news of a CA that cannot be used leaves the former one.
func TestTrust(t *testing.T) {
	ca := signed(t, testKey(t), &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)})
	if _, err := trustOf(&hostv1.WatchTrustResponse{TrustDomain: "test.reeve", CaCertificates: [][]byte{ca}}); err != nil {
		t.Error(err)
	}
	for name, message := range map[string]*hostv1.WatchTrustResponse{
		"nothing": {}, "no domain": {CaCertificates: [][]byte{ca}}, "no CA": {TrustDomain: "test.reeve"},
		"damaged": {TrustDomain: "test.reeve", CaCertificates: [][]byte{ca, ca[1:]}},
	} {
		if _, err := trustOf(message); err == nil {
			t.Errorf("%s is taken for a CA", name)
		}
	}
}

// Whatever a certificate names, it is taken for a role's only in the one form that the cluster writes.
func FuzzPeerOf(f *testing.F) {
	for _, seed := range []string{testID, testID + "/", "spiffe://test.reeve", "spiffe://test.reeve/node/a/role/b?c#d", "spiffe:opaque"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := url.Parse(text)
		if err != nil {
			return
		}
		peer, err := peerOf(&x509.Certificate{URIs: []*url.URL{parsed}}, "test.reeve")
		if err == nil && parsed.String() != "spiffe://test.reeve/node/"+(&url.URL{Path: peer.NodeID}).EscapedPath()+"/role/"+peer.Role {
			t.Errorf("%q is taken for %v", text, peer)
		}
	})
}

// Whatever the core answers, it is refused, or a certificate of the key for the ID.
func FuzzIssued(f *testing.F) {
	// The same in every process that fuzzes, and at every time.
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{1}, 32))
	if err != nil {
		f.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := signed(f, key, &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * 365 * time.Hour), URIs: uris(f, testID)})
	if _, err := checkSVID([][]byte{good}, key, testID, now); err != nil {
		f.Fatal(err)
	}
	f.Add(good, good)
	f.Add(good[:len(good)/2], []byte{})
	f.Fuzz(func(t *testing.T, leaf, more []byte) {
		made, err := checkSVID([][]byte{leaf, more}, key, testID, now)
		if err == nil && !bytes.Equal(made.certificate.Leaf.Raw, leaf) {
			t.Error("another certificate was made of it")
		}
		if trust, err := trustOf(&hostv1.WatchTrustResponse{TrustDomain: "test.reeve", CaCertificates: [][]byte{leaf, more}}); err == nil && trust == nil {
			t.Error("neither trust nor an error")
		}
	})
}

// Whatever an endpoint's address is, what becomes of it is a host and a port, or an error.
func FuzzHostPort(f *testing.F) {
	for _, seed := range []string{"127.0.0.1:80", "https://[::1]:443/path", "[fe80::1%eth0]:1", "unix:///x", "://", ":1", "host:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		found, err := addressOf(&hostv1.DirectoryRole{Role: "x", Endpoints: []*rolev1.Endpoint{{Name: "y", Address: address}}}, "")
		if err != nil {
			return
		}
		if host, port, err := net.SplitHostPort(found); err != nil || host == "" || port == "" {
			t.Errorf("%q became %q", address, found)
		}
	})
}
