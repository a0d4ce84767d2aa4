package ca_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
)

// request makes a certificate request for a key.
func request(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "nobody"}, DNSNames: []string{"curator.test.reeve"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Whatever is sent, what comes out is a key of a kind that is issued for, and proved.
func FuzzCertificateRequest(f *testing.F) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		f.Fatal(err)
	}
	for _, key := range []any{ed, ecKey(f, elliptic.P256()), ecKey(f, elliptic.P384()), weak} {
		f.Add(request(f, key))
	}
	f.Add([]byte{})
	f.Add([]byte{0x30, 0x82, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, der []byte) {
		key, err := ca.RequestedKey(der)
		if err != nil {
			if key != nil {
				t.Error("a key with an error")
			}
			return
		}
		parsed, err := x509.ParseCertificateRequest(der)
		if err != nil || parsed.CheckSignature() != nil {
			t.Errorf("let through: %v", err)
		}
		switch key := key.(type) {
		case ed25519.PublicKey:
		case *ecdsa.PublicKey:
			if key.Curve != elliptic.P256() {
				t.Errorf("curve %s", key.Curve.Params().Name)
			}
		default:
			t.Errorf("a key that is a %T", key)
		}
	})
}
