package enrol

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"math/big"
	"testing"
	"time"
)

// Whatever chain a server shows, it is believed only if a certificate with the pinned key is in it.
func FuzzVerify(f *testing.F) {
	// The same seeds each time.
	caKey := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	const name = "curator.c1.reeve"
	from, end := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: end, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	if err != nil {
		f.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: end, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, caKey.Public(), caKey)
	if err != nil {
		f.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(rootDER)
	if err != nil {
		f.Fatal(err)
	}
	pin := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	f.Add(leafDER, rootDER)
	f.Add(rootDER, leafDER)
	f.Add(leafDER, []byte{})
	f.Add([]byte{}, rootDER)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var chain []*x509.Certificate
		pinned := false
		for _, der := range [][]byte{first, second} {
			certificate, err := x509.ParseCertificate(der)
			if err != nil {
				continue // TLS takes no such chain
			}
			chain = append(chain, certificate)
			pinned = pinned || sha256.Sum256(certificate.RawSubjectPublicKeyInfo) == pin
		}
		if err := verify(chain, [][]byte{pin[:]}, name, time.Now()); err == nil && (!pinned || len(chain) != 2 || chain[0].VerifyHostname(name) != nil) {
			t.Error("it is believed")
		}
	})
}
