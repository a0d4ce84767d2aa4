package target_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/internal/testcluster"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// The nodes: their IDs come of the keys, which come of the numbers.
const (
	numberA, nodeA = 3674, "reeve-aaaa019b41b997a989124c9c5f73b139"
	numberB, nodeB = 72390, "reeve-bbbba58ffe7b2fd5a5a203b577653050"
)

// labID is the ID of the cluster of most tests, otherID of another one.
const labID, otherID = "5f0c5f0c5f0c5f0c5f0c5f0c5f0c5f0c", "beefbeefbeefbeefbeefbeefbeefbeef"

// nowhere is an address at which nobody listens.
const nowhere = "127.0.0.1:1"

// rig is a cluster with a real curator and two nodes, and a person with a configuration directory.
type rig struct {
	*testcluster.Cluster
	t     *testing.T
	a, b  *testcluster.Node
	apis  map[*testcluster.Node]string
	owner clusterv1.ManagementServiceClient
	store *contexts.Store
	// dir holds the configuration and the files of the person; socket is the local one of the first node.
	dir, socket, ownerKey string
	mu                    sync.Mutex
	now                   time.Time
	// others are curators that nodes tell of before the real one.
	others []string
	// lost says that the address of the real one leads nowhere, of which only the machine's own way to it is left.
	lost bool
	// members are what nodes say of their members of the store, by the nodes' IDs. mu guards it.
	members map[string]*consensusv1.StoreStatus
}

func newKey(t *testing.T, file string) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return private
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, labID)
}

func newRigOf(t *testing.T, clusterID string) *rig {
	t.Helper()
	dir := directory(t)
	r := &rig{t: t, dir: dir, ownerKey: filepath.Join(dir, "owner.key"), socket: filepath.Join(dir, "run", "node.sock"),
		a: testcluster.NewNode(numberA), b: testcluster.NewNode(numberB), apis: make(map[*testcluster.Node]string), store: contexts.New(filepath.Join(dir, "config"))}
	key := newKey(t, r.ownerKey)
	var err error
	r.Cluster, err = testcluster.New(&clusterv1.BootstrapRequest{
		ClusterId: clusterID, OwnerPublicKey: public(key), Roles: []*clusterv1.RoleAssignment{{Role: "consensus"}, {Role: "curator"}},
		Plugins: []*clusterv1.PluginRecord{testcluster.Plugin("consensus"), testcluster.Plugin("curator")},
	}, testcluster.Began, r.a, r.b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	conn, err := r.Dial(key)
	if err != nil {
		t.Fatal(err)
	}
	r.owner = clusterv1.NewManagementServiceClient(conn)
	t.Cleanup(func() { _ = conn.Close() })
	r.serveNode(r.a)
	r.serveNode(r.b)
	r.serveLocal(r.socket)
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), r.CAPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	r.clock(0)
	return r
}

func (r *rig) end() {
	if err := r.Close(); err != nil && !errors.Is(err, rpc.ErrShutdown) {
		r.t.Error(err)
	}
}

// api is the own API of a node.
type api struct {
	nodev1.UnimplementedNodeServiceServer
	rig *rig
	id  string
}

func (a api) GetStatus(context.Context, *nodev1.GetStatusRequest) (*nodev1.GetStatusResponse, error) {
	access := &nodev1.ClusterAccess{ClusterId: a.rig.ID, CaCertificates: [][]byte{a.rig.CA}, Curators: append(slices.Clone(a.rig.others), a.rig.Curator())}
	if a.rig.lost {
		access.Curators, access.LocalCurator = []string{nowhere}, a.rig.Curator()
	}
	a.rig.mu.Lock()
	defer a.rig.mu.Unlock()
	return &nodev1.GetStatusResponse{Status: &nodev1.Status{NodeId: a.id, Store: a.rig.members[a.id], Cluster: access}}, nil
}

// serveNode serves the own API of a node, which tells the curator where that is.
func (r *rig) serveNode(node *testcluster.Node) {
	r.t.Helper()
	if err := node.Dial(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = node.Close() })
	certificate, err := node.Certificate(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.apis[node] = r.serveTLS(certificate, func(server *grpc.Server) { nodev1.RegisterNodeServiceServer(server, api{rig: r, id: node.ID}) })
	r.report(node)
}

// report has a node tell the curator where it serves, and the first one where the curator is.
func (r *rig) report(node *testcluster.Node) {
	r.t.Helper()
	status := &clusterv1.NodeStatus{ApiAddress: r.apis[node]}
	if node == r.a {
		status.Instances = []*clusterv1.InstanceStatus{{
			Role: "curator", State: hostv1.InstanceState_INSTANCE_STATE_READY, Endpoints: []*rolev1.Endpoint{{Name: testcluster.ClusterCapability, Address: r.Curator()}},
		}}
	}
	if _, err := node.API().ReportStatus(r.t.Context(), &clusterv1.ReportStatusRequest{Status: status}, grpc.WaitForReady(true)); err != nil {
		r.t.Fatal(err)
	}
}

// serveLocal serves the own API of the first node on a socket.
func (r *rig) serveLocal(socket string) {
	r.t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Serve(listener, func(server *grpc.Server) { nodev1.RegisterNodeServiceServer(server, api{rig: r, id: nodeA}) })
}

// playCurator serves, besides the real curator, another one, as the test has it. Nodes tell of it first.
func (r *rig) playCurator(register func(*grpc.Server), options ...grpc.ServerOption) {
	r.t.Helper()
	certificate, err := r.CuratorCertificate()
	if err != nil {
		r.t.Fatal(err)
	}
	r.others = append(r.others, r.serveTLS(certificate, register, options...))
}

// serveTLS serves with a certificate at an address of its own, and returns that.
func (r *rig) serveTLS(certificate *tls.Certificate, register func(*grpc.Server), options ...grpc.ServerOption) string {
	r.t.Helper()
	address, err := r.ServeTLS(certificate, register, options...)
	if err != nil {
		r.t.Fatal(err)
	}
	return address
}

// move stops the curator and starts it at another address.
func (r *rig) move() {
	r.t.Helper()
	if err := errors.Join(r.StopCurator(), r.StartCurator()); err != nil {
		r.t.Fatal(err)
	}
	r.report(r.a)
}

// calls is how often an RPC of the cluster API was called, with any result.
func (r *rig) calls(name string) int {
	r.t.Helper()
	response, err := r.owner.ListAudit(context.Background(), &clusterv1.ListAuditRequest{Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	calls := 0
	for _, entry := range response.GetEntries() {
		if entry.GetRpc() == name {
			calls++
		}
	}
	return calls
}

// clock sets the time of the cluster and of the person.
func (r *rig) clock(after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = testcluster.Began.Add(after)
	if err := r.SetClock(r.now); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) options() target.Options {
	return target.Options{Contexts: r.store, HostSocket: filepath.Join(r.dir, "none"), Now: func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}}
}

// alice makes an operator and returns the file with her key.
func (r *rig) alice() string {
	r.t.Helper()
	file := filepath.Join(r.dir, "alice.key")
	_, err := r.owner.AddOperator(r.t.Context(), &clusterv1.AddOperatorRequest{
		Name: "alice", Role: clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR, PublicKey: public(newKey(r.t, file)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return file
}

// byAddress and bySocket are ways to log in.
func (r *rig) byAddress() target.Options {
	options := r.options()
	options.Address, options.CAFile = r.Curator(), filepath.Join(r.dir, "ca.pem")
	return options
}

func (r *rig) bySocket() target.Options {
	options := r.options()
	options.Socket = r.socket
	return options
}

func (r *rig) login(options target.Options, plan target.LoginPlan) *contexts.Session {
	r.t.Helper()
	_, session, err := target.Login(r.t.Context(), options, plan)
	if err != nil {
		r.t.Fatal(err)
	}
	return session
}

func (r *rig) open() *target.Target {
	r.t.Helper()
	cluster, err := target.Open(r.t.Context(), r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cluster.Close() })
	return cluster
}

// list makes a call.
func list(ctx context.Context, cluster *target.Target) error {
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	_, err = management.ListNodes(ctx, &clusterv1.ListNodesRequest{})
	return fault.FromRPC(err, "no list", "")
}

func (r *rig) session() *contexts.Session {
	r.t.Helper()
	session, err := r.store.Session("lab")
	if err != nil {
		r.t.Fatal(err)
	}
	return session
}
