package peers

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"
)

// Where root keeps what the members share.
const (
	// Prefix is that of all of it.
	Prefix = "/reeve/consensus/peers/"
	// AuthorityKey holds the certificate and the key of the peers' CA. It is created once.
	AuthorityKey = Prefix + "authority"
)

const (
	certificateType = "CERTIFICATE"
	keyType         = "PRIVATE KEY"
	// maxPEM bounds what is parsed; a real authority has about 900 bytes.
	maxPEM = 64 << 10
	// backdated is how far the clocks of the members may be apart.
	backdated = 24 * time.Hour
	// validity is for ever: a certificate ends with its member, and a store that was off for years must start.
	validity = 100 * 365 * 24 * time.Hour
)

// Authority is the CA of a store's peers.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes the CA of a cluster's store.
func NewAuthority(cluster string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template()
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "Peers of the consensus store of " + cluster}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the CA of the store's peers: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	return &Authority{certificate: certificate, key: key}, err
}

func template() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-backdated), NotAfter: now.Add(validity)}, nil
}

// Certificate is the CA's own, DER.
func (a *Authority) Certificate() []byte { return a.certificate.Raw }

// Marshal is the CA as it is stored: certificate and key, PEM.
func (a *Authority) Marshal() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of the peers' CA: %w", err)
	}
	return append(encode(certificateType, a.certificate.Raw), encode(keyType, key)...), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// ParseAuthority reads what Marshal wrote. Its errors show nothing of the content.
func ParseAuthority(content []byte) (*Authority, error) {
	if len(content) > maxPEM {
		return nil, fmt.Errorf("longer than %d bytes", maxPEM)
	}
	first, rest := pem.Decode(content)
	if first == nil || first.Type != certificateType {
		return nil, errors.New("not a CA: it does not begin with a certificate")
	}
	second, rest := pem.Decode(rest)
	if second == nil || second.Type != keyType || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not a CA: its certificate is not followed by a key and nothing else")
	}
	certificate, err := x509.ParseCertificate(first.Bytes)
	if err != nil || !certificate.IsCA {
		return nil, errors.New("not a CA: its certificate is not one of a CA")
	}
	key, err := parseKey(second.Bytes)
	if err != nil {
		return nil, err
	}
	public, ok := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, errors.New("not a CA: the key is not that of the certificate")
	}
	return &Authority{certificate: certificate, key: key}, nil
}

func parseKey(der []byte) (crypto.Signer, error) {
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("not a private key (PKCS #8)")
	}
	switch key := parsed.(type) {
	case *ecdsa.PrivateKey:
		return key, nil
	case ed25519.PrivateKey:
		return key, nil
	}
	return nil, errors.New("a private key of a kind that peers do not use")
}

// Issue makes the certificate of a member, DER.
func (a *Authority) Issue(key crypto.PublicKey, name Name) ([]byte, error) {
	template, err := template()
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: name.Node}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames, template.URIs = []string{ServerName}, []*url.URL{name.URI()}
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("make the peer certificate of %s: %w", name.Node, err)
	}
	return der, nil
}

// maxRequest bounds a certificate request; a real one has about 200 bytes.
const maxRequest = 16 << 10

// ParseRequest returns the key of a certificate request (PKCS #10, DER) that is signed by it: ECDSA P-256 or Ed25519. Nothing else of it is looked at.
func ParseRequest(der []byte) (crypto.PublicKey, error) {
	if len(der) > maxRequest {
		return nil, fmt.Errorf("the certificate request is longer than %d bytes", maxRequest)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("not a certificate request: %w", err)
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return nil, errors.New("the certificate request has an ECDSA key of another curve than P-256")
		}
	case ed25519.PublicKey:
	default:
		return nil, errors.New("the certificate request has a key that is neither ECDSA P-256 nor Ed25519")
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the certificate request is not signed by its key: %w", err)
	}
	return request.PublicKey, nil
}
