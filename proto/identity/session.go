package identity

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// Session is who a certificate that the cluster API issued to a person is for: the SPIFFE ID in it says all of this, and the CA has signed it.
type Session struct {
	// Operator is the operator's name; empty: the holder of the owner key.
	Operator string
	// ID is the ID of the operator's record, or OwnerKeyID of the owner key: it tells whom a name meant when the session began.
	ID string
	// Ends is when the session ends, in whole seconds: no certificate of it is valid longer.
	Ends time.Time
}

// OwnerKeyID is the ID of sessions of the owner key: the hex of the key's first 16 bytes.
func OwnerKeyID(key ed25519.PublicKey) string {
	return hex.EncodeToString(key[:16])
}

// SessionURI is the SPIFFE ID of a session: /operator/<name>/<ID>/<end> or /owner/<ID>/<end>, the end in seconds of the Unix epoch.
func SessionURI(trustDomain string, s Session) *url.URL {
	who := "/owner/"
	if s.Operator != "" {
		who = "/operator/" + s.Operator + "/"
	}
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: who + s.ID + "/" + strconv.FormatInt(s.Ends.Unix(), 10)}
}

// sessionPath matches the path of a session's SPIFFE ID. The end has no more digits than what a certificate can say, which ends with the year 9999.
var sessionPath = regexp.MustCompile(`^/(?:owner|operator/([^/]+))/([0-9a-f]{8,64})/([0-9]{1,12})$`)

// ErrNoSession says that a certificate is not that of a session.
var ErrNoSession = errors.New("identity: the certificate is not an operator's")

// SessionOf returns the session that a certificate is for: ErrNoSession if it is for something else. It looks at the name only, which is exactly one that
// SessionURI makes: no port, query or other spelling beside it.
func SessionOf(certificate *x509.Certificate) (Session, error) {
	if len(certificate.URIs) != 1 {
		return Session{}, ErrNoSession
	}
	uri := certificate.URIs[0]
	match := sessionPath.FindStringSubmatch(uri.Path)
	if match == nil || match[1] != "" && !ValidName(match[1]) {
		return Session{}, ErrNoSession
	}
	ends, err := strconv.ParseInt(match[3], 10, 64)
	if err != nil {
		return Session{}, ErrNoSession
	}
	session := Session{Operator: match[1], ID: match[2], Ends: time.Unix(ends, 0)}
	if uri.Hostname() == "" || uri.String() != SessionURI(uri.Hostname(), session).String() {
		return Session{}, ErrNoSession
	}
	return session, nil
}

// VerifySession returns the session that a client's certificate chain proves, for a cluster whose CA is roots: ErrNoSession if it is for something else
// than a session, another error if it does not prove it at that time. Whether the operator is still one, or the owner key still the
// owner's, is for the caller to look up.
func VerifySession(chain []*x509.Certificate, roots []*x509.Certificate, trustDomain string, now time.Time) (Session, error) {
	if len(chain) == 0 {
		return Session{}, ErrNoSession
	}
	session, err := SessionOf(chain[0])
	if err != nil {
		return Session{}, err
	}
	leaf := chain[0]
	if host := leaf.URIs[0].Host; host != trustDomain {
		return Session{}, fmt.Errorf("identity: the certificate is for trust domain %q, not for %q", host, trustDomain)
	}
	if leaf.IsCA || leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		return Session{}, errors.New("identity: the certificate is that of an authority")
	}
	if err := verifyChain(chain, roots, x509.ExtKeyUsageClientAuth, now); err != nil {
		return Session{}, err
	}
	if !now.Before(session.Ends) {
		return Session{}, fmt.Errorf("identity: the session ended at %s", session.Ends.UTC().Format(time.RFC3339))
	}
	if leaf.NotAfter.After(session.Ends) {
		return Session{}, fmt.Errorf("identity: the certificate is valid longer than its session, which ends at %s", session.Ends.UTC().Format(time.RFC3339))
	}
	return session, nil
}
