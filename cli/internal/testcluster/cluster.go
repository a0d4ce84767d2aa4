package testcluster

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/rpc"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Began is when everything of a cluster has happened, unless its clock is set to something else.
var Began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Cluster is a cluster with one curator, whose clock stands still.
type Cluster struct {
	// ID is the cluster's, and CA the certificate of its CA, DER.
	ID      string
	CA      []byte
	program *rpc.Client
	start   startRequest
	first   *Node

	serving sync.WaitGroup

	mu      sync.Mutex
	address string
	serves  bool
	now     time.Time
	servers []*grpc.Server
	closed  bool
}

// startRequest, startResponse and certificate are those of testcurator.
type startRequest struct {
	Bootstrap []byte
	Nodes     [][]byte
	Clock     int64
}

type startResponse struct {
	Address   string
	Bootstrap []byte
}

type certificate struct {
	Chain [][]byte
	Key   []byte
}

// none is the argument and the answer of calls that have none.
type none struct{}

// New makes a cluster, of which nodes are members: the first has made it, with the plugins and the roles of the request. The request needs no keys but the owner's.
func New(request *clusterv1.BootstrapRequest, now time.Time, nodes ...*Node) (*Cluster, error) {
	program, err := rpc.Dial("unix", os.Getenv(Variable))
	if err != nil {
		return nil, err
	}
	c := &Cluster{ID: request.GetClusterId(), program: program, now: now, first: nodes[0]}
	request = proto.CloneOf(request)
	request.NodePublicKey = nodes[0].public()
	if c.start.Bootstrap, err = proto.Marshal(request); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for _, node := range nodes {
		node.cluster = c
		if node == nodes[0] {
			continue
		}
		record, err := proto.Marshal(&clusterv1.NodeRecord{
			Id: node.ID, PublicKey: node.public(), State: clusterv1.NodeState_NODE_STATE_UP, Generation: 1, Labels: request.GetLabels(),
		})
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.start.Nodes = append(c.start.Nodes, record)
	}
	if err := c.StartCurator(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.start.Nodes = nil
	return c, nil
}

// Join is the cluster as a node knows it that has registered with it.
func Join(id, curator string, ca []byte, now time.Time, node *Node) *Cluster {
	c := &Cluster{ID: id, CA: ca, now: now, address: curator, serves: true}
	node.cluster = c
	return c
}

// Record is the catalog entry of a plugin that a cluster begins with. All that it asks for is granted.
func Record(manifest *rolev1.Manifest) *clusterv1.PluginRecord {
	record := &clusterv1.PluginRecord{
		Name: manifest.GetName(), Version: manifest.GetVersion(), Manifest: manifest,
		Digests: map[string]string{"linux/amd64": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
	}
	for _, role := range manifest.GetRoles() {
		record.Grants = append(record.Grants, &clusterv1.RoleGrants{Role: role.GetName(), ConsensusUser: role.GetConsensusUser(), Grants: role.GetGrants()})
	}
	return record
}

// Capabilities that the roles of a cluster have to provide.
const (
	ConsensusCapability = "reeve.consensus.v1"
	ClusterCapability   = "reeve.cluster.v1"
)

// Plugin is the catalog entry of a plugin with one role of the same name. Those called consensus and curator make a cluster.
func Plugin(name string) *clusterv1.PluginRecord {
	role := &rolev1.RoleManifest{Name: name, Summary: "The role " + name}
	switch name {
	case "consensus":
		role.Provides = []string{ConsensusCapability}
	case "curator":
		role.Provides, role.Requires, role.ConsensusUser = []string{ClusterCapability}, []string{ConsensusCapability}, "curator"
	}
	return Record(&rolev1.Manifest{Name: name, Version: "0.1.0", Protocols: []string{"reeve.role.v1"}, Roles: []*rolev1.RoleManifest{role}})
}

// StartCurator starts the curator, at another address than the one before.
func (c *Cluster) StartCurator() error {
	var response startResponse
	c.start.Clock = c.Now().UnixNano()
	if err := c.program.Call("Cluster.Start", c.start, &response); err != nil {
		return err
	}
	made := new(clusterv1.BootstrapResponse)
	if err := proto.Unmarshal(response.Bootstrap, made); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.address, c.serves = response.Address, true
	if c.CA == nil { // others read it later
		c.CA, c.first.chain = made.GetCaCertificates()[0], made.GetNodeSvid()
	}
	return nil
}

// StopCurator ends the curator and all of its streams.
func (c *Cluster) StopCurator() error {
	c.mu.Lock()
	c.serves = false
	c.mu.Unlock()
	return c.program.Call("Cluster.Stop", none{}, new(none))
}

// Close ends everything that is served here, and the cluster, unless it was joined.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, server := range c.servers {
		server.Stop()
	}
	c.mu.Unlock()
	c.serving.Wait()
	if c.program == nil {
		return nil
	}
	return c.program.Close()
}

// ServeTLS serves with a certificate at an address of its own until Close, and returns that. Clients have to show a certificate, which nobody looks at.
func (c *Cluster) ServeTLS(certificate *tls.Certificate, register func(*grpc.Server), options ...grpc.ServerOption) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	transport := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequireAnyClientCert})
	c.Serve(listener, register, append(options, grpc.Creds(transport))...)
	return listener.Addr().String(), nil
}

// Serve serves until Close.
func (c *Cluster) Serve(listener net.Listener, register func(*grpc.Server), options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(options...)
	register(server)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, server)
	if c.closed {
		server.Stop()
	}
	c.serving.Go(func() { _ = server.Serve(listener) })
	return server
}

// Curator is the address at which the curator serves, or last did.
func (c *Cluster) Curator() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.address
}

// Serves says whether the curator runs.
func (c *Cluster) Serves() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serves
}

// Now is the time of the cluster.
func (c *Cluster) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// SetClock sets the time of the cluster.
func (c *Cluster) SetClock(now time.Time) error {
	c.mu.Lock()
	c.now = now
	c.mu.Unlock()
	return c.program.Call("Cluster.SetClock", now.UnixNano(), new(none))
}

// Domain is the trust domain of the cluster.
func (c *Cluster) Domain() string { return identity.TrustDomain(c.ID) }

// CAPEM is the certificate of the cluster's CA, PEM.
func (c *Cluster) CAPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.CA})
}

// HideSigningKey takes the key of the cluster's CA away, or puts it back: meanwhile the curator issues nothing.
func (c *Cluster) HideSigningKey(hide bool) error {
	return c.program.Call("Cluster.HideSigningKey", hide, new(none))
}

// PutNode writes the record of a node as it is.
func (c *Cluster) PutNode(record *clusterv1.NodeRecord) error {
	encoded, err := proto.Marshal(record)
	if err != nil {
		return err
	}
	return c.program.Call("Cluster.PutNode", encoded, new(none))
}

// ReplaceOwner replaces the owner key, as the core of the first node does.
func (c *Cluster) ReplaceOwner(request *clusterv1.ReplaceOwnerRequest) (*clusterv1.ReplaceOwnerResponse, error) {
	encoded, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	var answer []byte
	if err := c.program.Call("Cluster.ReplaceOwner", encoded, &answer); err != nil {
		return nil, err
	}
	response := new(clusterv1.ReplaceOwnerResponse)
	return response, proto.Unmarshal(answer, response)
}

// CuratorCertificate is that of another curator of the cluster, which the test plays.
func (c *Cluster) CuratorCertificate() (*tls.Certificate, error) {
	var issued certificate
	if err := c.program.Call("Cluster.IssueCurator", none{}, &issued); err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(issued.Key)
	return &tls.Certificate{Certificate: issued.Chain, PrivateKey: key}, err
}

// Dial connects to the curator, wherever it serves at the time, and proves a key.
func (c *Cluster) Dial(key ed25519.PrivateKey, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	shown, err := identity.SelfSigned(key, c.Now())
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///curator", append(options,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", c.Curator())
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}, MinConnectTimeout: time.Minute}),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{shown}, InsecureSkipVerify: true,
		})))...)
}
