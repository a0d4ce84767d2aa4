package contexts

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

// SessionVersion is that of the format of a session's file.
const SessionVersion = "reeve.session.v1"

// Session is what a person shows to the cluster after logging in: a key of its own and the certificate for it. It cannot be changed.
type Session struct {
	// Session is who the certificate is for, and when the session ends.
	identity.Session
	// Role is what the person may do, as the cluster last said: "owner", "operator" or "viewer".
	Role string
	// Received is when the certificate was received, by this machine's clock.
	Received time.Time

	key   ed25519.PrivateKey
	chain []*x509.Certificate
}

// NewSession makes a Session of a key and the certificates, leaf first, that the cluster issued for it.
func NewSession(key ed25519.PrivateKey, chain []*x509.Certificate, role string, received time.Time) (*Session, error) {
	if len(key) != ed25519.PrivateKeySize || len(chain) == 0 {
		return nil, errors.New("a session has a key and a certificate")
	}
	if public, ok := chain[0].PublicKey.(ed25519.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the certificate of the session is for another key")
	}
	who, err := identity.SessionOf(chain[0])
	if err != nil {
		return nil, err
	}
	return &Session{Session: who, Role: role, Received: received.UTC().Truncate(time.Second), key: key, chain: chain}, nil
}

// String says whose session it is. It is there so that no text of a Session shows its key.
func (s *Session) String() string { return "session of " + s.Who() }

// GoString implements fmt.GoStringer, as String does fmt.Stringer.
func (s *Session) GoString() string { return s.String() }

// Who is whose session it is: "operator alice", or "owner" for the holder of the owner key.
func (s *Session) Who() string {
	if s.Operator == "" {
		return "owner"
	}
	return "operator " + s.Operator
}

// TrustDomain is that of the cluster that issued the certificate.
func (s *Session) TrustDomain() string { return s.chain[0].URIs[0].Host }

// CertificateEnds is when the certificate ends. The session may go on with the next one.
func (s *Session) CertificateEnds() time.Time { return s.chain[0].NotAfter }

// Over reports whether nothing can be done with the session any more, not even go on with another certificate.
func (s *Session) Over(now time.Time) bool {
	return !now.Before(s.Ends) || now.After(s.CertificateEnds())
}

// Due reports whether the certificate is past half of its life and another one would last longer.
func (s *Session) Due(now time.Time) bool {
	at, ok := s.DueAt()
	return ok && !now.Before(at)
}

// DueAt is when the certificate is past half of its life, counted from when it was received. The last one of a session never is: the end of the
// session cuts it short, and nothing is gained by asking again.
func (s *Session) DueAt() (time.Time, bool) {
	return s.Received.Add(s.CertificateEnds().Sub(s.Received) / 2), s.CertificateEnds().Before(s.Ends.Add(-time.Second))
}

// Same reports whether both have the same certificate.
func (s *Session) Same(other *Session) bool { return s.chain[0].Equal(other.chain[0]) }

// Certificate is what is shown in a TLS handshake.
func (s *Session) Certificate() *tls.Certificate {
	certificate := &tls.Certificate{PrivateKey: crypto.Signer(s.key), Leaf: s.chain[0]}
	for _, link := range s.chain {
		certificate.Certificate = append(certificate.Certificate, link.Raw)
	}
	return certificate
}

// sessionFile is what the file of a session holds.
type sessionFile struct {
	Version      string    `json:"version"`
	Role         string    `json:"role"`
	Received     time.Time `json:"received"`
	Key          string    `json:"key"`
	Certificates string    `json:"certificates"`
}

// ParseSession parses the file of a session. No error quotes what is in it. It is a *VersionError if the file is in another format.
func ParseSession(text []byte) (*Session, error) {
	var file sessionFile
	if err := decode(text, SessionVersion, &file); err != nil {
		return nil, err
	}
	block, rest := pem.Decode([]byte(file.Key))
	if block == nil || block.Type != keyBlock || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("its key is not one PEM block " + keyBlock)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("its key cannot be parsed")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("its key is not an Ed25519 key")
	}
	chain, err := parseCertificates([]byte(file.Certificates))
	if err != nil {
		return nil, errors.New("its certificates cannot be parsed")
	}
	return NewSession(key, chain, file.Role, file.Received)
}

// encode returns the text of the session's file.
func (s *Session) encode() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, errors.New("cannot write the key of the session")
	}
	text, err := json.MarshalIndent(sessionFile{
		Version: SessionVersion, Role: s.Role, Received: s.Received,
		Key:          string(pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})),
		Certificates: EncodeCertificates(s.chain),
	}, "", "  ")
	if err != nil {
		return nil, errors.New("cannot write the session")
	}
	return append(text, '\n'), nil
}
