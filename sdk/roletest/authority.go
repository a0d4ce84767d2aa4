package roletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
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

// Authority is the CA of a test's cluster, with a trust domain of its own. It gives SVIDs to the instances on the hosts whose authority it is.
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

// clusters is how many there have been.
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
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "CA of a test"},
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

func serial() *big.Int {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	random[0] &= 0x7f
	return new(big.Int).SetBytes(random[:])
}

// tell has the hosts hear which CAs are trusted.
func (a *Authority) tell() {
	told := &hostv1.WatchTrustResponse{TrustDomain: a.domain}
	for _, trusted := range a.trusted {
		told.CaCertificates = append(told.CaCertificates, trusted.certificate.Raw)
	}
	a.trust.Set(told)
}

// SetLifetime sets how long the SVIDs are good that are given from now on: an hour, unless this says otherwise.
func (a *Authority) SetLifetime(lifetime time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lifetime = lifetime
}

// Issued is how many SVIDs were given.
func (a *Authority) Issued() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

// Prepare adds a new CA, which is trusted and does not sign yet: the first step of a rotation.
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

// Activate has the newest CA sign from now on.
func (a *Authority) Activate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signer = a.trusted[len(a.trusted)-1]
}

// Retire has all CAs forgotten but the one that signs.
func (a *Authority) Retire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trusted = slices.Clone(a.trusted[len(a.trusted)-1:])
	a.signer = a.trusted[0]
	a.tell()
}

// Session gives a certificate of an operator's session, as the cluster gives it to reeve login, with a key: valid for an hour, or until the session ends. Whom roles take for an operator
// is Host.Operators.
func (a *Authority) Session(session identity.Session) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: session.Operator}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{identity.SessionURI(a.domain, session)},
	}
	if session.Ends.Before(template.NotAfter) {
		template.NotAfter = session.Ends
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.signer.certificate, key.Public(), a.signer.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Roots are the certificates of the CAs that are trusted.
func (a *Authority) Roots() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	roots := x509.NewCertPool()
	for _, trusted := range a.trusted {
		roots.AddCert(trusted.certificate)
	}
	return roots
}

// issue gives an SVID. The error is a gRPC status.
func (a *Authority) issue(nodeID, role string, csr []byte) (*hostv1.IssueSVIDResponse, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the certificate request cannot be used: %s", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: role + " of " + nodeID},
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
