package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// selfSignedLifetime is how long a self-signed certificate of a pinned key is valid. Whoever holds the key can make another at any time, so it
// is only as long as a connection's handshake with clocks that are an hour apart may need.
const selfSignedLifetime = 2 * time.Hour

// SelfSigned makes a short-lived certificate by which the holder of key proves, in a TLS handshake, that it holds it. Nothing in it but the
// key says who the holder is.
func SelfSigned(key ed25519.PrivateKey, now time.Time) (tls.Certificate, error) {
	if len(key) != ed25519.PrivateKeySize {
		return tls.Certificate{}, errors.New("identity: not an Ed25519 private key")
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "reeve pinned key"},
		NotBefore:             now.Add(-selfSignedLifetime / 2),
		NotAfter:              now.Add(selfSignedLifetime / 2),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("identity: self-signed certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("identity: self-signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// PinnedKey returns the key that a self-signed certificate, as SelfSigned makes them, proves. The TLS handshake proves that the peer holds
// the key; the caller compares it with the one that it has pinned. The certificate's times are not looked at: the handshake is fresh
// by itself, and clocks may be far apart.
func PinnedKey(certificate *x509.Certificate) (ed25519.PublicKey, error) {
	key, ok := certificate.PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("identity: the certificate's key is %s, not Ed25519", certificate.PublicKeyAlgorithm)
	}
	if err := certificate.CheckSignature(certificate.SignatureAlgorithm, certificate.RawTBSCertificate, certificate.Signature); err != nil {
		return nil, fmt.Errorf("identity: the certificate is not self-signed: %w", err)
	}
	return key, nil
}
