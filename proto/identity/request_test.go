package identity_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"testing"

	"github.com/reeveproject/reeve/proto/identity"
)

// Whatever is sent, what comes out is a key of a kind that is issued for, and proved.
func FuzzCertificateRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, der []byte) {
		key, err := identity.RequestedKey(der)
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
