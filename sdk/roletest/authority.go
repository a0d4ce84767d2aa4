package roletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/event"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Authority is the CA of a test's cluster, with its own trust domain. It issues SVIDs to the instances on its hosts.
type Authority struct {
	cluster, domain string
	trust           event.Value[*hostv1.WatchTrustResponse]

	mu       sync.Mutex
	signer   *ca
	trusted  []*ca
	lifetime time.Duration
	issued   int
}

type ca struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// clusters counts the clusters.
var clusters atomic.Uint64

func newAuthority() (*Authority, error) {
	cluster := fmt.Sprintf("00000000-0000-4000-8000-%012x", clusters.Add(1))
	a := &Authority{cluster: cluster, domain: identity.TrustDomain(cluster), lifetime: time.Hour}
	signer, err := newCA(a.domain)
	if err != nil {
		return nil, err
	}
	a.signer, a.trusted = signer, []*ca{signer}
	a.tell()
	return a, nil
}

func newCA(domain string) (*ca, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "CA of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, URIs: []*url.URL{identity.ClusterURI(domain)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &ca{key: key, certificate: certificate}, err
}

// tell publishes the trusted CAs to the hosts.
func (a *Authority) tell() {
	told := &hostv1.WatchTrustResponse{TrustDomain: a.domain}
	for _, trusted := range a.trusted {
		told.CaCertificates = append(told.CaCertificates, trusted.certificate.Raw)
	}
	a.trust.Set(told)
}

// SetLifetime sets the lifetime of SVIDs from now on. The default is an hour.
func (a *Authority) SetLifetime(lifetime time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lifetime = lifetime
}

// Issued is the number of SVIDs issued.
func (a *Authority) Issued() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

// Prepare adds a new CA that is trusted but does not sign yet: the first step of a rotation.
func (a *Authority) Prepare() error {
	added, err := newCA(a.domain)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trusted = append(a.trusted, added)
	a.tell()
	return nil
}

// Activate makes the newest CA sign from now on.
func (a *Authority) Activate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signer = a.trusted[len(a.trusted)-1]
}

// Retire removes all CAs but the newest, which signs from now on.
func (a *Authority) Retire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trusted = slices.Clone(a.trusted[len(a.trusted)-1:])
	a.signer = a.trusted[0]
	a.tell()
}

// Session issues a certificate of an operator's session with its key, as the cluster does for reeve login: valid for an hour, or until the session
// ends. Host.Operators decides whom roles accept as an operator.
func (a *Authority) Session(session identity.Session) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: session.Operator}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{identity.SessionURI(a.domain, session)},
	}
	if session.Ends.Before(template.NotAfter) {
		template.NotAfter = session.Ends
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.signer.certificate, key.Public(), a.signer.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Roots are the certificates of the trusted CAs.
func (a *Authority) Roots() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	roots := x509.NewCertPool()
	for _, trusted := range a.trusted {
		roots.AddCert(trusted.certificate)
	}
	return roots
}

// issue issues an SVID. The error is a gRPC status.
func (a *Authority) issue(nodeID, role string, csr []byte) (*hostv1.IssueSVIDResponse, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "invalid certificate request: %s", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: role + " of " + nodeID},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(a.lifetime), KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{identity.RoleURI(a.domain, nodeID, role)},
	}
	svid, err := x509.CreateCertificate(rand.Reader, template, a.signer.certificate, request.PublicKey, a.signer.key)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "sign: %s", err)
	}
	a.issued++
	response := &hostv1.IssueSVIDResponse{Svid: [][]byte{svid}}
	for _, trusted := range a.trusted {
		response.CaCertificates = append(response.CaCertificates, trusted.certificate.Raw)
	}
	return response, nil
}
