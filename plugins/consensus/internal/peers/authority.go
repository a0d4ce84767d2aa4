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
	// AuthorityKey holds the certificate and the key of the peers' CA, and those of the other CA while it is being replaced.
	AuthorityKey = Prefix + "authority"
	// ReplaceKey is there when the CA is to be replaced because a member has left that has its key. The value is the ID of that member.
	ReplaceKey = Prefix + "replace"
	// AskedKey is how many of the replacements that the cluster API has asked for were begun.
	AskedKey = Prefix + "asked"
	// FollowedPrefix is where each member says which CA it follows.
	FollowedPrefix = Prefix + "followed/"
)

// FollowedKey is where a member says which CAs it trusts and has its certificate of: the Mark of an Authority.
func FollowedKey(member uint64) string { return FollowedPrefix + FormatMember(member) }

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
	signs signer
	// other is a second CA that is trusted. If it has a key, it will sign; if not, it did. Its certificate is nil if there is none.
	other signer
}

type signer struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes the CA of a cluster's store.
func NewAuthority(cluster string) (*Authority, error) {
	made, err := newSigner(cluster, big.NewInt(1))
	return &Authority{signs: made}, err
}

// newSigner makes a CA. The serial number is one more than that of the CA before it, so that it is known which of two is the later one.
func newSigner(cluster string, number *big.Int) (made signer, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return made, err
	}
	template := template()
	template.SerialNumber = number
	template.Subject = pkix.Name{CommonName: "Peers of the consensus store of " + cluster}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return made, fmt.Errorf("make the CA of the store's peers: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	return signer{certificate: certificate, key: key}, err
}

func template() *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{NotBefore: now.Add(-backdated), NotAfter: now.Add(validity)}
}

// Certificates are those that are trusted, DER. The first is the one that signs.
func (a *Authority) Certificates() [][]byte {
	all := [][]byte{a.signs.certificate.Raw}
	if a.other.certificate != nil {
		all = append(all, a.other.certificate.Raw)
	}
	return all
}

// Marshal is the CA as it is stored: certificate and key, PEM, and then what there is of the other one.
func (a *Authority) Marshal() ([]byte, error) {
	var content []byte
	for _, one := range []signer{a.signs, a.other} {
		if one.certificate != nil {
			content = append(content, encode(certificateType, one.certificate.Raw)...)
		}
		if one.key == nil {
			continue
		}
		key, err := x509.MarshalPKCS8PrivateKey(one.key)
		if err != nil {
			return nil, fmt.Errorf("encode the key of the peers' CA: %w", err)
		}
		content = append(content, encode(keyType, key)...)
	}
	return content, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// ParseAuthority reads what Marshal wrote. Its errors show nothing of the content.
func ParseAuthority(content []byte) (*Authority, error) {
	if len(content) > maxPEM {
		return nil, fmt.Errorf("longer than %d bytes", maxPEM)
	}
	signs, rest, err := parseSigner(content)
	if err != nil {
		return nil, err
	}
	if signs.key == nil {
		return nil, errors.New("not a CA: its certificate is not followed by a key")
	}
	a := &Authority{signs: signs}
	if len(bytes.TrimSpace(rest)) == 0 {
		return a, nil
	}
	if a.other, rest, err = parseSigner(rest); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not a CA: something follows the other certificate")
	}
	return a, nil
}

// parseSigner reads a certificate and, if it follows, its key.
func parseSigner(content []byte) (read signer, rest []byte, err error) {
	first, rest := pem.Decode(content)
	if first == nil || first.Type != certificateType {
		return read, nil, errors.New("not a CA: it does not begin with a certificate")
	}
	read.certificate, err = x509.ParseCertificate(first.Bytes)
	if err != nil || !read.certificate.IsCA {
		return read, nil, errors.New("not a CA: its certificate is not one of a CA")
	}
	second, after := pem.Decode(rest)
	if second == nil || second.Type != keyType {
		return read, rest, nil
	}
	if read.key, err = parseKey(second.Bytes); err != nil {
		return read, nil, err
	}
	public, ok := read.certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(read.key.Public()) {
		return read, nil, errors.New("not a CA: the key is not that of the certificate")
	}
	return read, after, nil
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
	template := template()
	template.Subject = pkix.Name{CommonName: name.Node}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames, template.URIs = []string{ServerName}, []*url.URL{name.URI()}
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.signs.certificate, key, a.signs.key)
	if err != nil {
		return nil, fmt.Errorf("make the peer certificate of %s: %w", name.Node, err)
	}
	return der, nil
}
