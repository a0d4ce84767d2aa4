package nodeapi_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/network"
	"github.com/reeveproject/reeve/core/nodeapi"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

var trustDomain = names.TrustDomain("0123456789abcdef")

// api is a running server and the node around it.
type api struct {
	t        *testing.T
	server   *nodeapi.Server
	dir      string
	socket   string
	shared   *nodeapi.Socket
	status   event.Value[*nodev1.Status]
	identity event.Value[*identity.Identity]
	// operators holds nothing until a test sets it.
	operators event.Value[[]*clusterv1.Operator]
	directory event.Value[*hostv1.Directory]
	events    *events.Journal
	// ahead is how far the node's clock is ahead of the right time; less than zero: behind.
	ahead atomic.Int64
	// asked is how often the server has looked at its clock.
	asked atomic.Int64
	owner ed25519.PrivateKey
	ca    *x509.Certificate
	caKey ed25519.PrivateKey
	stop  func()

	mu       sync.Mutex
	importer func(ctx context.Context, r io.Reader) (string, *rolev1.Manifest, error)
	// storage is its volume, and locked why it is not open.
	storage volume
	locked  error
	// done is what the node was told to do.
	done []string
	// fails is what it answers to that.
	fails error
}

// serve starts a server on the socket and on a free port, of a node that is a member.
func serve(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, dir: shortDir(t), owner: newKey(t), caKey: newKey(t)}
	a.storage.api = a
	a.socket = filepath.Join(a.dir, "node.sock")
	a.ca = sign(t, &x509.Certificate{
		URIs: []*url.URL{names.ClusterURI(trustDomain)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, a.caKey.Public(), a.caKey)
	a.identity.Set(a.member())
	a.status.Set(&nodev1.Status{NodeId: "reeve-1"})
	a.journal()
	a.run()
	return a
}

// listen makes a local socket, until the test ends.
func listen(t *testing.T, path string) *nodeapi.Socket {
	t.Helper()
	socket, err := nodeapi.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := socket.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return socket
}

// journal makes and runs a journal of events with one event in it.
func (a *api) journal() {
	a.t.Helper()
	var err error
	if a.events, err = events.Open(events.Config{Path: filepath.Join(a.dir, "events.jsonl")}); err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.events.Run(ctx) }()
	a.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			a.t.Error(err)
		}
	})
	a.events.Record(&nodev1.Event{Type: "First"})
	if err := a.events.Sync(a.context()); err != nil {
		a.t.Fatal(err)
	}
}

// run makes and runs the server until the test ends or stop is called.
func (a *api) run() {
	a.t.Helper()
	if a.shared == nil {
		a.shared = listen(a.t, a.socket)
	}
	a.runWith(a.config())
}

// runWith is run with another configuration. There is a socket already.
func (a *api) runWith(config nodeapi.Config) {
	a.t.Helper()
	server, err := nodeapi.New(config)
	if err != nil {
		a.t.Fatal(err)
	}
	a.server = server
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			a.t.Errorf("Run: %v", err)
		}
	})
	a.t.Cleanup(a.stop)
}

func (a *api) config() nodeapi.Config {
	return nodeapi.Config{
		Log:      hclog.New(&hclog.LoggerOptions{Output: a.t.Output(), Level: hclog.Debug}),
		Socket:   a.shared,
		Listen:   "127.0.0.1:0",
		Status:   &a.status,
		Identity: &a.identity,
		Import: func(ctx context.Context, r io.Reader) (string, *rolev1.Manifest, error) {
			a.mu.Lock()
			importer := a.importer
			a.mu.Unlock()
			if importer == nil {
				_, err := io.Copy(io.Discard, r)
				return "", nil, errors.Join(err, errors.New("this test imports nothing"))
			}
			return importer(ctx, r)
		},
		LogPath: func(role string) (string, bool) {
			return filepath.Join(a.dir, role+".log"), role != "unknown"
		},
		Operators: &a.operators,
		Directory: &a.directory,
		Now: func() time.Time {
			defer a.asked.Add(1)
			return a.now()
		},
		Events: a.events,
		Restart: func(_ context.Context, role string, dryRun bool) (string, error) {
			return "reeve-1/" + role + "/7", a.note(fmt.Sprintf("restart %s %t", role, dryRun))
		},
		Debug: func(_ context.Context, role, socket string, dryRun bool) (int, string, error) {
			return 42, "reeve-1/" + role + "/7", a.note(fmt.Sprintf("debug %s at %s %t", role, socket, dryRun))
		},
		Role: func(_ context.Context, role string) (*nodev1.GetRoleResponse, error) {
			return &nodev1.GetRoleResponse{Sandbox: &nodev1.Sandbox{Uid: 7}}, a.note("role " + role)
		},
		Metrics: func(context.Context) ([]byte, error) { return []byte("reeve_up 1\n"), a.note("metrics") },
		RecoverStore: func(_ context.Context, dryRun bool) (int64, int64, error) {
			return 20, 10, a.note(fmt.Sprintf("recover %t", dryRun))
		},
		ReplaceOwner: func(_ context.Context, key ed25519.PublicKey, requester string, dryRun bool) ([]string, error) {
			return []string{"reeve-2"}, a.note(fmt.Sprintf("replace owner by %x for %s %t", key, requester, dryRun))
		},
		Majority: majority{a},
		SetPeers: func(peers []string, dryRun bool) ([]string, error) {
			if slices.Contains(peers, "wrong:1") {
				return nil, &network.PeerError{Problem: "wrong"}
			}
			return peers, a.note(fmt.Sprintf("peers %v %t", peers, dryRun))
		},
		Storage: &a.storage, Locked: a.whyLocked,
	}
}

// now is the time by the node's clock.
func (a *api) now() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) }

// note keeps what the node was told to do, and returns what it answers.
func (a *api) note(what string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = append(a.done, what)
	return a.fails
}

// wasDone returns what the node was told to do since it was last asked.
func (a *api) wasDone() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := a.done
	a.done = nil
	return done
}

// answers sets how the node answers.
func (a *api) answers(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = err
}

// holder is a session's certificate as the CA of the cluster issues it, valid until a time.
func (a *api) holder(session names.Session, until time.Time) *tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		URIs: []*url.URL{names.SessionURI(trustDomain, session)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: until,
	}
	leaf := sign(a.t, template, a.ca, key.Public(), a.caKey)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// operator is the certificate of an operator's session that goes on for a while.
func (a *api) operator(name, id string) *tls.Certificate {
	a.t.Helper()
	return a.holder(names.Session{Operator: name, ID: id, Ends: time.Now().Add(10 * time.Minute)}, time.Now().Add(5*time.Minute))
}

// record is an operator's.
func record(name, id string, role clusterv1.OperatorRole) *clusterv1.Operator {
	return &clusterv1.Operator{Name: name, Id: id, Role: role}
}

// imports sets what ImportPlugin does.
func (a *api) imports(importer func(ctx context.Context, r io.Reader) (string, *rolev1.Manifest, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.importer = importer
}

// member is the identity of a node that is a member.
func (a *api) member() *identity.Identity {
	key := newKey(a.t)
	id := names.NodeID(key.Public().(ed25519.PublicKey))
	return &identity.Identity{
		NodeID:      id,
		Key:         key,
		TrustDomain: trustDomain,
		CA:          []*x509.Certificate{a.ca},
		SVID:        a.svid(key, id),
		Owner:       a.owner.Public().(ed25519.PublicKey),
	}
}

func (a *api) svid(key ed25519.PrivateKey, nodeID string) *tls.Certificate {
	leaf := sign(a.t, &x509.Certificate{
		URIs:     []*url.URL{names.NodeURI(trustDomain, nodeID)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.ca, key.Public(), a.caKey)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// local connects to the socket.
func (a *api) local() *grpc.ClientConn {
	return a.dial("unix:"+a.socket, insecure.NewCredentials())
}

// remote connects over TCP with a certificate, or none, and checks that it is the node that answers.
func (a *api) remote(certificate *tls.Certificate, options ...grpc.DialOption) *grpc.ClientConn {
	roots := x509.NewCertPool()
	roots.AddCert(a.ca)
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A node's SVID names no host: its chain and its URI are checked.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots})
			if node, _ := a.identity.Get(); err == nil && state.PeerCertificates[0].URIs[0].String() != names.NodeURI(trustDomain, node.NodeID).String() {
				err = errors.New("another node answered")
			}
			return err
		},
	}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	return a.dial("passthrough:///"+a.server.Address(), credentials.NewTLS(config), options...)
}

func (a *api) dial(target string, transport credentials.TransportCredentials, options ...grpc.DialOption) *grpc.ClientConn {
	a.t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(transport))...)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	return conn
}

// context is how long a test waits for an answer.
func (a *api) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	a.t.Cleanup(cancel)
	return ctx
}

func (a *api) client() nodev1.NodeServiceClient { return nodev1.NewNodeServiceClient(a.local()) }

func selfSigned(t *testing.T, key ed25519.PrivateKey) *tls.Certificate {
	t.Helper()
	certificate, err := names.SelfSigned(key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &certificate
}

// shortDir is a directory whose path leaves room for a socket's, and which other users may search.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "reeve-nodeapi-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, public any, key ed25519.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
