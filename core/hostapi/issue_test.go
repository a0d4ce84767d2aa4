package hostapi_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/inorder"
	spiffe "github.com/reeveproject/reeve/proto/identity"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

func TestIssueSVID(t *testing.T) {
	n := newNode(t, nil)
	n.identity.Set(n.issuer.identity())
	client := n.client(remitOf("role.1"))
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, csr := range map[string][]byte{"ECDSA": csrOf(t, newKey(t)), "Ed25519": csrOf(t, private)} {
		response, err := client.IssueSVID(within(t), &hostv1.IssueSVIDRequest{CertificateRequest: csr})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		leaf, err := x509.ParseCertificate(response.GetSvid()[0])
		if err != nil {
			t.Fatal(err)
		}
		if want := spiffe.RoleURI(trustDomain, nodeID, "role").String(); len(leaf.URIs) != 1 || leaf.URIs[0].String() != want {
			t.Errorf("%s: it is for %v", name, leaf.URIs)
		}
		if len(response.GetCaCertificates()) != 1 {
			t.Errorf("%s: %d CA certificates", name, len(response.GetCaCertificates()))
		}
	}
}

// TestCertificateRequestsThatAreNone do not reach the curator.
func TestCertificateRequestsThatAreNone(t *testing.T) {
	n := newNode(t, nil)
	n.identity.Set(n.issuer.identity())
	client := n.client(remitOf("role.1"))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := csrOf(t, newKey(t))
	tampered := bytes.Clone(good)
	tampered[len(tampered)-1] ^= 1
	for name, csr := range inorder.Of(map[string][]byte{
		"none": nil, "nonsense": []byte("nonsense"), "RSA": csrOf(t, rsaKey), "P-384": csrOf(t, p384), "of another's signature": tampered,
		"too long": append(bytes.Clone(good), make([]byte, 8<<10)...), "half": good[:len(good)/2],
	}) {
		t.Run(name, func(t *testing.T) {
			_, err := client.IssueSVID(within(t), &hostv1.IssueSVIDRequest{CertificateRequest: csr})
			mustRefuse(t, err, codes.InvalidArgument, "certificate request")
		})
	}
	if calls := n.issuer.called(); calls != 0 {
		t.Errorf("the curator was asked %d times", calls)
	}
}

// TestNoSVID: why there is none is told, and what a repetition may mend is Unavailable.
func TestNoSVID(t *testing.T) {
	n := newNode(t, nil)
	client := n.client(remitOf("role.1"))
	ask := func() error {
		_, err := client.IssueSVID(within(t), &hostv1.IssueSVIDRequest{CertificateRequest: csrOf(t, newKey(t))})
		return err
	}
	mustRefuse(t, ask(), codes.Unavailable, "not a member")
	n.identity.Set(n.issuer.identity())
	for _, test := range []struct {
		refuse error
		change func(*x509.Certificate)
		code   codes.Code
		part   string
	}{
		{refuse: errors.New("no curator answers"), code: codes.Unavailable, part: "no curator answers"},
		{refuse: status.Error(codes.Unavailable, "out of reach"), code: codes.Unavailable, part: "out of reach"},
		{refuse: status.Error(codes.Internal, "broken"), code: codes.Unavailable, part: "broken"},
		{refuse: status.Error(codes.NotFound, "not assigned"), code: codes.NotFound, part: "not assigned"},
		{refuse: status.Error(codes.PermissionDenied, "removed"), code: codes.PermissionDenied, part: "removed"},
		{change: func(c *x509.Certificate) { c.PublicKey = newKey(t).Public() }, code: codes.Unavailable, part: "another key"},
		{change: func(c *x509.Certificate) { c.URIs = []*url.URL{spiffe.RoleURI(trustDomain, nodeID, "other")} }, code: codes.Unavailable, part: "role/other"},
		{change: func(c *x509.Certificate) { c.URIs = nil }, code: codes.Unavailable, part: "role/role"},
	} {
		n.issuer.set(func(i *issuer) { i.refuse, i.change = test.refuse, test.change })
		mustRefuse(t, ask(), test.code, test.part)
	}
	n.issuer.set(func(i *issuer) { i.refuse, i.change = nil, nil })
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// TestTooManySVIDs: an instance is given only so many, whatever way it asks, and others are not concerned. What fails without a curator is not counted.
func TestTooManySVIDs(t *testing.T) {
	n := newNode(t, nil)
	n.identity.Set(n.issuer.identity())
	greedy, modest := n.client(remitOf("role.1")), n.client(remitOf("role.2"))
	csr := csrOf(t, newKey(t))
	n.issuer.set(func(i *issuer) { i.refuse = errors.New("nobody") })
	for range 50 {
		_, err := greedy.IssueSVID(within(t), &hostv1.IssueSVIDRequest{CertificateRequest: csr})
		mustRefuse(t, err, codes.Unavailable)
	}
	n.issuer.set(func(i *issuer) { i.refuse, i.calls = nil, 0 })
	var err error
	before := 0
	for given := 0; err == nil; given++ {
		if given > 40 {
			t.Fatal("there is no bound")
		}
		// Of the call that is refused: a later one may be given another SVID.
		before = n.issuer.called()
		_, err = greedy.IssueSVID(within(t), &hostv1.IssueSVIDRequest{CertificateRequest: csr})
	}
	mustRefuse(t, err, codes.ResourceExhausted, "role", "half of its lifetime")
	if n.issuer.called() != before {
		t.Error("the curator is asked all the same")
	}
	if _, err := modest.IssueSVID(within(t), &hostv1.IssueSVIDRequest{CertificateRequest: csr}); err != nil {
		t.Errorf("another instance: %v", err)
	}
}

func TestWatchTrust(t *testing.T) {
	n := newNode(t, nil)
	stream, err := n.client(remitOf("role.1")).WatchTrust(within(t), &hostv1.WatchTrustRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// A node that is no member has no CA, and says nothing.
	none := n.issuer.identity()
	none.CA = nil
	n.identity.Set(none)
	want := func() *hostv1.WatchTrustResponse {
		now := n.issuer.identity()
		told := &hostv1.WatchTrustResponse{TrustDomain: trustDomain}
		for _, certificate := range now.CA {
			told.CaCertificates = append(told.CaCertificates, certificate.Raw)
		}
		return told
	}
	n.identity.Set(n.issuer.identity())
	next(t, stream, want())
	// What changes of the node's own identity is no news to a role.
	same := n.issuer.identity()
	same.Owner = ed25519.PublicKey(big.NewInt(1).FillBytes(make([]byte, 32)))
	n.identity.Set(same)
	n.issuer.rotate(t)
	n.identity.Set(n.issuer.identity())
	next(t, stream, want())
}
