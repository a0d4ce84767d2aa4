package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"
)

// NewKey makes a key, which is returned as a file of PEM, and what asks for its certificate, in DER.
func NewKey(template *x509.CertificateRequest) (private, request []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	if request, err = x509.CreateCertificateRequest(rand.Reader, template, key); err != nil {
		return nil, nil, fmt.Errorf("make a certificate request: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return PrivateKey(der), request, nil
}

// PrivateKey is a key in PKCS #8 as a file.
func PrivateKey(der []byte) []byte { return block("PRIVATE KEY", der) }

// PublicKey is a key in PKIX as a file.
func PublicKey(der []byte) []byte { return block("PUBLIC KEY", der) }

// Certificates are certificates as one file.
func Certificates(ders ...[]byte) []byte {
	var text bytes.Buffer
	for _, der := range ders {
		text.Write(block("CERTIFICATE", der))
	}
	return text.Bytes()
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Kubeconfig is the file by which a program finds API servers and proves itself to them, all by paths of other files: in JSON, which is YAML too.
// Workers' certificates are of the same authority and for addresses that nodes claim: an API server must prove the name "kubernetes".
func Kubeconfig(server, authorities, certificate, key string) ([]byte, error) {
	named := func(field string, value any) []map[string]any {
		return []map[string]any{{"name": "reeve", field: value}}
	}
	return json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "reeve",
		"clusters": named("cluster", map[string]string{"server": server, "certificate-authority": authorities, "tls-server-name": "kubernetes"}),
		"users":    named("user", map[string]string{"client-certificate": certificate, "client-key": key}),
		"contexts": named("context", map[string]string{"cluster": "reeve", "user": "reeve"}),
	}, "", "  ")
}

// Granted describes the credentials that kubernetes-pki has issued.
type Granted struct {
	// Again is when it is to be asked for again.
	Again time.Time
	// Revision is that of the trust that came with it.
	Revision uint64
	// AtStart holds what programs read only when they start. If it changes, the programs must be restarted.
	AtStart string
}

// Until has the credentials asked for again after half of the time for which a certificate is good, at the latest.
func (g *Granted) Until(certificate *x509.Certificate) {
	if half := time.Now().Add(time.Until(certificate.NotAfter) / 2); g.Again.IsZero() || half.Before(g.Again) {
		g.Again = half
	}
}
