package enrol_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const clusterID = "0123456789abcdef"

var trustDomain = names.TrustDomain(clusterID)

// authority is a cluster CA.
type authority struct {
	t           testing.TB
	key         ed25519.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	a.certificate = a.sign(&x509.Certificate{
		URIs: []*url.URL{names.ClusterURI(trustDomain)}, NotBefore: time.Now().Add(-100 * time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, a.key)
	return a
}

func (a *authority) pin() []byte {
	sum := sha256.Sum256(a.certificate.RawSubjectPublicKeyInfo)
	return sum[:]
}

// sign signs a certificate for a key; as long as the authority has none itself, its own.
func (a *authority) sign(template *x509.Certificate, key ed25519.PrivateKey) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent := a.certificate
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate
}

// issue makes a chain for a server of the name, the root included.
func (a *authority) issue(name string, from, end time.Time, usage x509.ExtKeyUsage) *tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		URIs: []*url.URL{names.RoleURI(trustDomain, "reeve-00", "curator")}, NotBefore: from, NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	if name != "" {
		template.DNSNames = []string{name}
	}
	return &tls.Certificate{Certificate: [][]byte{a.sign(template, key).Raw, a.certificate.Raw}, PrivateKey: key}
}

func (a *authority) curator() *tls.Certificate {
	a.t.Helper()
	return a.issue(names.CuratorName(trustDomain), time.Now().Add(-time.Hour), time.Now().Add(time.Hour), x509.ExtKeyUsageServerAuth)
}

// itself serves with the root in the place of the leaf.
func (a *authority) itself() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{a.certificate.Raw}, PrivateKey: a.key}
}

// noCA serves with a chain whose root has the pinned key, and may sign nothing.
func (a *authority) noCA() *tls.Certificate {
	a.t.Helper()
	bare := &authority{t: a.t, key: a.key}
	bare.certificate = bare.sign(&x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, a.key)
	return bare.curator()
}

func without(certificate *tls.Certificate) *tls.Certificate {
	return &tls.Certificate{Certificate: certificate.Certificate[:1], PrivateKey: certificate.PrivateKey}
}

func beside(certificate *tls.Certificate, root *x509.Certificate) *tls.Certificate {
	return &tls.Certificate{Certificate: append(slices.Clip(certificate.Certificate), root.Raw), PrivateKey: certificate.PrivateKey}
}

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func nodeID(key ed25519.PrivateKey) string { return names.NodeID(key.Public().(ed25519.PublicKey)) }

// curator serves the EnrolmentService for real, over TLS and TCP.
type curator struct {
	clusterv1.UnimplementedEnrolmentServiceServer

	address string
	server  *grpc.Server
	// states are what Await streams, to the first caller who comes.
	states chan clusterv1.NodeState
	stop   func()

	mu      sync.Mutex
	refusal error
	callers []*x509.Certificate
	cuk     []byte
}

func serve(t *testing.T, certificate *tls.Certificate) *curator {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, certificate, listener)
}

func serveOn(t *testing.T, certificate *tls.Certificate, listener net.Listener) *curator {
	t.Helper()
	c := &curator{address: listener.Addr().String(), states: make(chan clusterv1.NodeState, 8)}
	c.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequireAnyClientCert,
	})))
	clusterv1.RegisterEnrolmentServiceServer(c.server, c)
	ended := make(chan error, 1)
	go func() { ended <- c.server.Serve(listener) }()
	c.stop = sync.OnceFunc(func() {
		c.server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("the curator: %v", err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

// refuse has every call fail; nil: none.
func (c *curator) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = err
}

func (c *curator) called() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.callers)
}

// came keeps who called, and returns the ID of the node whose key that is.
func (c *curator) came(ctx context.Context) (string, error) {
	from, _ := peer.FromContext(ctx)
	who := from.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
	key, err := names.PinnedKey(who)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callers = append(c.callers, who)
	if err != nil {
		return "", err
	}
	return names.NodeID(key), c.refusal
}

func (c *curator) Register(ctx context.Context, _ *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	id, err := c.came(ctx)
	return &clusterv1.RegisterResponse{Node: &clusterv1.NodeRecord{Id: id}}, err
}

func (c *curator) Await(_ *clusterv1.AwaitRequest, stream clusterv1.EnrolmentService_AwaitServer) error {
	if _, err := c.came(stream.Context()); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case state := <-c.states:
			if err := stream.Send(&clusterv1.AwaitResponse{State: state}); err != nil {
				return err
			}
		}
	}
}

func (c *curator) Commit(ctx context.Context, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	id, err := c.came(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuk = request.GetCuk()
	return &clusterv1.CommitResponse{Node: &clusterv1.NodeRecord{Id: id}}, err
}

func (c *curator) Join(ctx context.Context, _ *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
	_, err := c.came(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	return &clusterv1.JoinResponse{Cuk: c.cuk}, err
}
