package peers

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// Files are what a member needs to speak to the others, in a directory of its own.
type Files struct{ Directory string }

func (f Files) key() string         { return filepath.Join(f.Directory, "key.pem") }
func (f Files) certificate() string { return filepath.Join(f.Directory, "certificate.pem") }
func (f Files) authority() string   { return filepath.Join(f.Directory, "ca.pem") }

// Info is what etcd is told to speak to the other members by. It believes nobody by that: the only CA is the member's own certificate, which has signed nothing. Others are
// reached through Outgoing and served by Listener, which look who it is; what of etcd gets around them fails.
func (f Files) Info() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: f.certificate(), KeyFile: f.key(), TrustedCAFile: f.certificate(), ServerName: ServerName, ClientCertAuth: true, MinVersion: tls.VersionTLS13,
	}
}

// Credentials are what is in the files.
type Credentials struct {
	Name        Name
	certificate tls.Certificate
	roots       *x509.CertPool
	authorities []*x509.Certificate // in roots; the first one signs
}

// Source gives the present credentials. It returns the same pointer until they change.
type Source func() (*Credentials, error)

// maxAuthorities is how many CAs are trusted at a time: while one is replaced, two.
const maxAuthorities = 2

// Key returns the member's key, which is made if it is not there.
func (f Files) Key() (crypto.Signer, error) {
	if err := os.MkdirAll(f.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the peer key: %w", err)
	}
	content, err := read(f.key())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the member's peer key: %w", err)
	default:
		block, _ := pem.Decode(content)
		if block == nil || block.Type != keyType {
			return nil, fmt.Errorf("%s is not a private key", f.key())
		}
		return parseKey(block.Bytes)
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		return nil, err
	}
	return made, f.write(steps.WritePeerKey, f.key(), encode(keyType, der))
}

// Request is a certificate request for the member's key.
func (f Files) Request() ([]byte, error) {
	key, err := f.Key()
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// Install keeps a certificate and the CAs that are to be trusted. Before, it checks that they fit each other, the member's key and its name. A crash between the two files leaves the former
// certificate beside the new CAs: either they trust it still, or the next start makes everything anew.
func (f Files) Install(certificate []byte, authorities [][]byte, name Name) error {
	key, err := f.Key()
	if err != nil {
		return err
	}
	if _, err := check(certificate, authorities, key, &name); err != nil {
		return err
	}
	var content []byte
	for _, authority := range authorities {
		content = append(content, encode(certificateType, authority)...)
	}
	if err := f.write(steps.WritePeerCA, f.authority(), content); err != nil {
		return err
	}
	return f.write(steps.WritePeerCertificate, f.certificate(), encode(certificateType, certificate))
}

// Load reads the files. It fails with fs.ErrNotExist if one is missing.
func (f Files) Load() (*Credentials, error) {
	certificates, err := readCertificates(f.certificate(), 1)
	if err != nil {
		return nil, err
	}
	authorities, err := readCertificates(f.authority(), maxAuthorities)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(f.key()); err != nil {
		return nil, fmt.Errorf("read the member's peer key: %w", err)
	}
	key, err := f.Key()
	if err != nil {
		return nil, err
	}
	return check(certificates[0], authorities, key, nil)
}

// readCertificates reads a file of certificates: one at least.
func readCertificates(path string, most int) (ders [][]byte, err error) {
	rest, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("read the member's peer certificate: %w", err)
	}
	for len(ders) == 0 || len(bytes.TrimSpace(rest)) > 0 {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != certificateType || len(ders) == most {
			return nil, fmt.Errorf("%s does not have 1 to %d certificates and nothing else", path, most)
		}
		ders = append(ders, block.Bytes)
	}
	return ders, nil
}

// check holds a certificate, the CAs, a key and, if it is known, a name against each other.
func check(certificate []byte, authorities [][]byte, key crypto.Signer, want *Name) (*Credentials, error) {
	c := &Credentials{roots: x509.NewCertPool()}
	for _, authority := range authorities {
		root, err := x509.ParseCertificate(authority)
		if err != nil {
			return nil, fmt.Errorf("the certificate of the peers' CA cannot be read: %w", err)
		}
		c.authorities = append(c.authorities, root)
		c.roots.AddCert(root)
	}
	if n := len(authorities); n == 0 || n > maxAuthorities {
		return nil, fmt.Errorf("%d certificates of the peers' CA, and not 1 to %d", n, maxAuthorities)
	}
	leaf, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("the member's peer certificate cannot be read: %w", err)
	}
	c.certificate = tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key, Leaf: leaf}
	if c.Name, err = verify(leaf, c.roots); err != nil {
		return nil, err
	}
	public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the member's peer certificate is for another key than the member's")
	}
	if want != nil && c.Name != *want {
		return nil, fmt.Errorf("the peer certificate is that of %s, not of %s", c.Name.URI(), want.URI())
	}
	return c, nil
}

// member returns whose certificate it is that somebody shows: of this store, by a CA that is trusted.
func (c *Credentials) member(leaf *x509.Certificate) (Name, error) {
	name, err := verify(leaf, c.roots)
	if err == nil && name.Cluster != c.Name.Cluster {
		err = fmt.Errorf("%s is of another cluster", name.URI())
	}
	return name, err
}

func verify(leaf *x509.Certificate, roots *x509.CertPool) (Name, error) {
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: ServerName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return Name{}, fmt.Errorf("the peer certificate is not of the peers' CA: %w", err)
	}
	return NameOf(leaf)
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err == nil && len(content) > maxPEM {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxPEM)
	}
	return content, err
}

func (f Files) write(step checkpoint.Step, path string, content []byte) error {
	return checkpoint.Around(step, func() error { return f.replace(path, content) })
}

func (f Files) replace(path string, content []byte) error {
	if err := renameio.WriteFile(path, content, 0o600, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("write the member's peer credentials: %w", err)
	}
	handle, err := os.Open(f.Directory)
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.Sync()
}
