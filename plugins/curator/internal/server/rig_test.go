package server_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/bootstrap"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const clusterID = "0123456789abcdef"

// patience bounds waits for what must happen; nothing waits for it when all is well.
const patience = 2 * time.Minute

// heartbeatTTL is for how long a heartbeat counts: longer than any test takes, on a busy machine too.
const heartbeatTTL = time.Hour

// host is the node of a curator.
type host struct {
	state    event.Value[string] // "ready", or "degraded: …"
	endpoint event.Value[string]
	local    event.Value[string] // where its own machine alone reaches the curator
	network  event.Value[[]string]
	values   event.Value[map[string]string] // what it publishes
}

func (h *host) Ready()                          { h.state.Set("ready") }
func (h *host) Degraded(reason string)          { h.state.Set("degraded: " + reason) }
func (h *host) Network() *event.Value[[]string] { return &h.network }

func (h *host) SetEndpoint(name, address string) {
	if name == "reeve.cluster.v1/local" {
		h.local.Set(address)
		return
	}
	h.endpoint.Set(name + "=" + address)
}

func (h *host) SetValue(name, value string) {
	h.values.Update(func(now map[string]string) map[string]string {
		next := maps.Clone(now)
		if next == nil {
			next = make(map[string]string)
		}
		next[name] = value
		return next
	})
}

// curator is a running instance.
type curator struct {
	t       *testing.T
	host    *host
	service *bootstrap.Service
	address string
	stop    func() error
	ended   <-chan error
	over    context.Context // done when Run has returned, with its error as the cause
}

// start runs a curator on the keys below prefix until the end of the test.
func start(t *testing.T, etcd *etcdtest.Etcd, prefix string, change func(*server.Config)) *curator {
	t.Helper()
	config := server.Config{
		Client: etcd.Client(t, prefix), Leases: etcd.Leases(t), ClusterUser: "curator", Bootstrap: bootstrap.NewService(time.Now), Host: new(host),
		NodeID: identity.NodeID(public(firstNode(prefix))), Role: "curator",
		Configuration: configuration.Configuration{Listen: "127.0.0.1:0"},
		Log:           hclog.NewNullLogger(), HeartbeatTTL: heartbeatTTL, AnswerWithin: patience, LastWord: patience,
	}
	if change != nil {
		change(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	over, isOver := context.WithCancelCause(context.Background())
	go func() {
		err := server.Run(ctx, config)
		isOver(err)
		ended <- err
	}()
	c := &curator{t: t, host: config.Host.(*host), service: config.Bootstrap, ended: ended, over: over}
	stopped := false
	c.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c
}

// firstNode is the key of the first node of the cluster whose keys are below prefix.
func firstNode(prefix string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(prefix))
	return ed25519.NewKeyFromSeed(seed[:])
}

// ready waits until the curator serves.
func (c *curator) ready() *curator {
	c.t.Helper()
	return c.entered(func(state string) bool { return state == "ready" })
}

// degraded waits until the curator serves with a reason that has all of the texts.
func (c *curator) degraded(texts ...string) *curator {
	c.t.Helper()
	return c.entered(func(state string) bool {
		for _, text := range texts {
			if !contains(state, text) {
				return false
			}
		}
		return strings.HasPrefix(state, "degraded")
	})
}

// entered waits until the curator serves in a state.
func (c *curator) entered(want func(state string) bool) *curator {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	defer context.AfterFunc(c.over, cancel)()
	if _, err := c.host.state.Wait(ctx, want); err != nil {
		state, _ := c.host.state.Get()
		c.t.Fatalf("the curator is %q: %v; Run: %v", state, err, context.Cause(c.over))
	}
	endpoint, told := c.host.endpoint.Get()
	if !told {
		c.address, _ = c.host.local.Get()
		return c
	}
	const name = "reeve.cluster.v1="
	if len(endpoint) <= len(name) || endpoint[:len(name)] != name {
		c.t.Fatalf("endpoint %q", endpoint)
	}
	c.address = endpoint[len(name):]
	return c
}

// cluster is a cluster of one node with one curator.
type cluster struct {
	t       *testing.T
	prefix  string
	owner   ed25519.PrivateKey
	node    ed25519.PrivateKey
	id      string
	curator *curator
	ca      [][]byte
	svid    *tls.Certificate

	// A handshake costs far more than a call, so the connections of the owner and to the store are made once.
	mu      sync.Mutex
	records *clientv3.Client
	owned   *grpc.ClientConn
	ownedBy ed25519.PrivateKey
	ownedOf *curator
	ownedCA [][]byte
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOn(t, etcd, nil)
}

func newClusterOn(t *testing.T, etcd *etcdtest.Etcd, change func(*server.Config)) *cluster {
	t.Helper()
	t.Parallel() // curators wait for their store most of the time
	return oneOfMany(t, etcd, change)
}

// oneOfMany is a cluster of a test that has several.
func oneOfMany(t *testing.T, etcd *etcdtest.Etcd, change func(*server.Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, prefix: etcd.NewPrefix(), owner: newKey(t)}
	c.node = firstNode(c.prefix)
	c.id = identity.NodeID(public(c.node))
	c.curator = start(t, etcd, c.prefix, change)
	request := c.request()
	response, err := c.curator.service.Bootstrap(t.Context(), request)
	// A busy store may take longer for one answer than curators of some tests wait. The call is made again as it was.
	for ctx := inTime(t); status.Code(err) == codes.Unavailable && ctx.Err() == nil; {
		response, err = c.curator.service.Bootstrap(ctx, request)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.ca = response.GetCaCertificates()
	c.svid = certificate(c.node, response.GetNodeSvid())
	c.curator.ready()
	return c
}

// request is what the core of the first node asks for.
func (c *cluster) request() *clusterv1.BootstrapRequest { return request(c.node, c.owner) }

func request(node, owner ed25519.PrivateKey) *clusterv1.BootstrapRequest {
	return &clusterv1.BootstrapRequest{
		ClusterId: clusterID, NodePublicKey: public(node), OwnerPublicKey: public(owner),
		Labels: map[string]string{"rack": "1"},
		Roles: []*clusterv1.RoleAssignment{
			{Role: "store"}, {Role: "api", Configuration: `{"listen": "127.0.0.1:0"}`},
		},
		// The roles are called otherwise than their plugins, and otherwise than the curator's own: names mean nothing.
		Plugins: []*clusterv1.PluginRecord{
			record(plugin("consensus", &rolev1.RoleManifest{Name: "store", Provides: []string{"reeve.consensus.v1"}})),
			record(plugin("curator", &rolev1.RoleManifest{
				Name: "api", ConsensusUser: "curator", Requires: []string{"reeve.consensus.v1"}, Provides: []string{"reeve.cluster.v1"},
				ConfigurationSchema: configuration.Schema,
			})),
			record(plugin("extras",
				&rolev1.RoleManifest{Name: "hostsfile", Grants: []*rolev1.Grant{replaceFile("/etc/hosts")}},
				&rolev1.RoleManifest{Name: "lighthouse", ConsensusUser: "beam", Requires: []string{"store"}})),
		},
	}
}

func plugin(name string, roles ...*rolev1.RoleManifest) *rolev1.Manifest {
	return &rolev1.Manifest{Name: name, Version: "1.0.0", Protocols: []string{"reeve.role.v1"}, Roles: roles}
}

var digests = map[string]string{"linux/amd64": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}

func replaceFile(path string) *rolev1.Grant {
	return &rolev1.Grant{Name: "replace-file", Parameters: map[string]string{"path": path}}
}

// record is the catalog entry that a core makes of a built-in plugin.
func record(manifest *rolev1.Manifest) *clusterv1.PluginRecord {
	record := &clusterv1.PluginRecord{Name: manifest.GetName(), Version: manifest.GetVersion(), Digests: digests, Manifest: manifest}
	for _, role := range manifest.GetRoles() {
		record.Grants = append(record.Grants, &clusterv1.RoleGrants{Role: role.GetName(), ConsensusUser: role.GetConsensusUser()})
	}
	return record
}

// secondNode adds the record of another node, as a registration will, and returns its key.
func (c *cluster) secondNode(roles ...string) ed25519.PrivateKey {
	c.t.Helper()
	key := newKey(c.t)
	node := &clusterv1.NodeRecord{Id: identity.NodeID(public(key)), PublicKey: public(key), State: clusterv1.NodeState_NODE_STATE_UP, Generation: 1}
	for _, role := range roles {
		node.Roles = append(node.Roles, &clusterv1.RoleAssignment{Role: role, Generation: 1})
	}
	c.update(func(*store.State) *store.Change { return &store.Change{Nodes: []*clusterv1.NodeRecord{node}} })
	return key
}

// setState moves a node to another state.
func (c *cluster) setState(id string, state clusterv1.NodeState) {
	c.t.Helper()
	c.update(func(before *store.State) *store.Change {
		node := proto.CloneOf(before.Nodes[id])
		node.State = state
		node.Generation++
		return &store.Change{Nodes: []*clusterv1.NodeRecord{node}}
	})
}

func (c *cluster) update(change func(*store.State) *store.Change) {
	c.t.Helper()
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	if _, err := records.Update(c.t.Context(), ritual{}, func(state *store.State) (*store.Change, error) { return change(state), nil }); err != nil {
		c.t.Fatal(err)
	}
}

// ritual is the call of changes that no RPC makes yet.
type ritual struct{}

func (ritual) Entry() *clusterv1.AuditEntry {
	return &clusterv1.AuditEntry{Rpc: "Test", Caller: "test", Code: "OK"}
}

func (ritual) Kept() {}

func (c *cluster) client() *clientv3.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records == nil {
		c.records = etcd.Client(c.t, c.prefix)
	}
	return c.records
}

// dial connects to a curator with a client certificate; nil: without one.
func (c *cluster) dial(to *curator, certificate *tls.Certificate, options ...grpc.DialOption) *grpc.ClientConn {
	c.t.Helper()
	return c.dialAs(to, certificate, firstStart, options...)
}

// firstStart is the incarnation of every node's core that a test does not start again.
var firstStart = &clusterv1.Incarnation{Number: 1, Nonce: []byte("0123456789abcdef")}

// dialAs connects as a start of a node's core: its calls say so. nil: they say nothing.
func (c *cluster) dialAs(to *curator, certificate *tls.Certificate, incarnation *clusterv1.Incarnation, options ...grpc.DialOption) *grpc.ClientConn {
	c.t.Helper()
	said := func(ctx context.Context) context.Context {
		if incarnation == nil {
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, clusterv1.IncarnationHeader, incarnation.Header())
	}
	roots := x509.NewCertPool()
	for _, der := range c.ca {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			c.t.Fatal(err)
		}
		roots.AddCert(root)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: identity.CuratorName(identity.TrustDomain(clusterID))}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	conn, err := grpc.NewClient("passthrough:///"+to.address, append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(said(ctx), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(said(ctx), desc, conn, method, options...)
		}))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// asNode is the node service as the first node calls it.
func (c *cluster) asNode() clusterv1.NodeServiceClient {
	return clusterv1.NewNodeServiceClient(c.dial(c.curator, c.svid))
}

// asOwner is the management service as the owner calls it.
func (c *cluster) asOwner() clusterv1.ManagementServiceClient {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	// After a change of the curator, of the owner's key or of the CA the handshake is part of what is tested.
	if c.ownedOf != c.curator || !c.ownedBy.Equal(c.owner) || !slices.EqualFunc(c.ownedCA, c.ca, bytes.Equal) {
		c.owned = c.dial(c.curator, selfSigned(c.t, c.owner))
		c.ownedBy, c.ownedOf, c.ownedCA = c.owner, c.curator, slices.Clone(c.ca)
	}
	return clusterv1.NewManagementServiceClient(c.owned)
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func selfSigned(t *testing.T, key ed25519.PrivateKey) *tls.Certificate {
	t.Helper()
	certificate, err := identity.SelfSigned(key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &certificate
}

func certificate(key ed25519.PrivateKey, chain [][]byte) *tls.Certificate {
	return &tls.Certificate{Certificate: chain, PrivateKey: key}
}

// wantCode fails the test if err has another code, or if its message lacks one of the texts.
func wantCode(t *testing.T, err error, code codes.Code, texts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("got %v, want %s", err, code)
		return
	}
	for _, text := range texts {
		if !contains(status.Convert(err).Message(), text) {
			t.Errorf("the message %q does not say %q", status.Convert(err).Message(), text)
		}
	}
}

// before is an authority with the key and the names of another, whose certificate was valid earlier: what it signed then is that of the cluster, and has ended.
func before(t *testing.T, own *ca.Authority, from time.Time) *ca.Authority {
	t.Helper()
	key, err := own.Key()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	template, err := x509.ParseCertificate(own.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore = from
	der, err := x509.CreateCertificate(rand.Reader, template, template, template.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ca.Open(key, der)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}
