package fakecluster

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Began is when everything of the cluster has happened.
var Began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ClusterID is the ID of the cluster.
const ClusterID = "5f0c"

// Cluster is a cluster. Its first node is the local one, where it has a socket.
type Cluster struct {
	id        string
	authority *authority
	servers   []*grpc.Server
	serving   sync.WaitGroup
	// curator is the address of the cluster API.
	curator       string
	curatorServer *grpc.Server

	mu      sync.Mutex
	changed chan struct{}
	// clock is the time of the cluster, which stands still.
	clock time.Time
	owner ed25519.PublicKey
	// operators are sorted by name; made counts all that there ever were.
	operators []*clusterv1.Operator
	made      int
	audit     []*clusterv1.AuditEntry
	noLogins  bool
	lifetime  uint32
	// curatorOn is the node that says in its status where the curator is; empty: none does.
	curatorOn string
	nodes     []*clusterv1.Node
	plugins   []*clusterv1.PluginRecord
	policy    *clusterv1.ClusterPolicy
	// reports are the signed reports of the conformance suite, by the digest of the executable.
	reports map[string][]byte
	// lame is the address of a curator whose store is away; empty: there is none. lameCalls counts its calls.
	lame      string
	lameCalls int
	// tickets are the newest first.
	tickets []*madeTicket
	// steps counts those of the rotation of the CA.
	steps  int
	member *hostv1.Membership
	// watchers is how many watch a node.
	watchers int
	// outcomes are the states that a role goes through on a node; absent: Starting, Ready.
	outcomes map[string][]*clusterv1.InstanceStatus
	side     nodeSide
	volume   volume
	// closed says that nothing is served any more.
	closed bool
}

// New makes the cluster ClusterID for an owner, with a curator that serves.
func New(owner ed25519.PublicKey) (*Cluster, error) { return NewOf(ClusterID, owner) }

// NewOf makes a cluster with another ID.
func NewOf(id string, owner ed25519.PublicKey) (*Cluster, error) {
	domain := identity.TrustDomain(id)
	authority, err := newAuthority(domain)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		id: id, authority: authority, changed: make(chan struct{}), clock: Began.Add(90 * time.Second), owner: owner, lifetime: certificateSeconds,
		outcomes: make(map[string][]*clusterv1.InstanceStatus),
		member: &hostv1.Membership{
			State: hostv1.MembershipState_MEMBERSHIP_STATE_HOME, Since: timestamppb.New(Began), ClusterId: id, TrustDomain: domain,
		},
	}
	return c, c.StartCurator()
}

// StartCurator serves the cluster API at an address of its own.
func (c *Cluster) StartCurator() error {
	certificate, err := c.curatorCertificate()
	if err != nil {
		return err
	}
	address, server, err := c.serveTLS(certificate, func(server *grpc.Server) {
		clusterv1.RegisterManagementServiceServer(server, &management{cluster: c})
		clusterv1.RegisterEnrolmentServiceServer(server, &enrolment{cluster: c})
	}, c.admitted()...)
	c.Update(func() { c.curator, c.curatorServer = address, server })
	return err
}

func (c *Cluster) curatorCertificate() (tls.Certificate, error) {
	return c.authority.server(identity.RoleURI(c.authority.domain, "reeve-any", "curator"), identity.CuratorName(c.authority.domain))
}

// Curator is the address of the cluster API.
func (c *Cluster) Curator() string { return c.curator }

// CA is the certificate of the cluster's CA, PEM.
func (c *Cluster) CA() []byte { return c.authority.PEM() }

// AddNode adds a node with an API of its own, whose certificate is for the ID certified.
func (c *Cluster) AddNode(id, certified string) error {
	certificate, err := c.authority.server(identity.NodeURI(c.authority.domain, certified), "")
	if err != nil {
		return err
	}
	address, _, err := c.serveTLS(certificate, func(server *grpc.Server) {
		nodev1.RegisterNodeServiceServer(server, &node{cluster: c, id: id})
	}, c.admitted()...)
	if err != nil {
		return err
	}
	c.Update(func() {
		c.nodes = append(c.nodes, &clusterv1.Node{
			Healthy: true,
			Record: &clusterv1.NodeRecord{
				Id: id, State: clusterv1.NodeState_NODE_STATE_UP, Labels: map[string]string{"zone": "a"}, Generation: 1, Created: timestamppb.New(Began),
			},
			Status: &clusterv1.NodeStatus{
				NodeId: id, Addresses: []string{"127.0.0.1"}, ApiAddress: address, Isolation: clusterv1.Isolation_ISOLATION_OWN_UID,
				Volume: "plain", Version: "0.1.0", Reported: timestamppb.New(Began),
			},
		})
	})
	return nil
}

// ServeLocal serves the own API of the first node on a socket.
func (c *Cluster) ServeLocal(socket string) error {
	// Renamed to its place, so that there is a node at any time while it is served anew.
	listener, err := net.Listen("unix", socket+".new")
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Rename(socket+".new", socket); err != nil {
		return errors.Join(err, listener.Close())
	}
	c.mu.Lock()
	served := c.volume.served
	c.mu.Unlock()
	local := c.serve(listener, func(server *grpc.Server) {
		nodev1.RegisterNodeServiceServer(server, &node{cluster: c, served: served})
	}, c.admitted()...)
	c.Update(func() { c.side.socket, c.side.local = socket, local })
	return nil
}

// serveTLS serves with a certificate at an address of its own, and returns that.
func (c *Cluster) serveTLS(certificate tls.Certificate, register func(*grpc.Server), options ...grpc.ServerOption) (string, *grpc.Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	transport := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert})
	return listener.Addr().String(), c.serve(listener, register, append(options, grpc.Creds(transport))...), nil
}

// admitted are the options of a server that admits the callers that its RPCs declare.
func (c *Cluster) admitted() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(c.unary), grpc.StreamInterceptor(c.stream)}
}

func (c *Cluster) serve(listener net.Listener, register func(*grpc.Server), options ...grpc.ServerOption) *grpc.Server {
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

// StopCurator ends the curator and all of its streams.
func (c *Cluster) StopCurator() { c.curatorServer.Stop() }

// Close ends all servers.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	servers := slices.Clone(c.servers)
	c.mu.Unlock()
	for _, server := range servers {
		server.Stop()
	}
	c.serving.Wait()
}

// SetClock sets the time of the cluster.
func (c *Cluster) SetClock(now time.Time) { c.Update(func() { c.clock = now }) }

// CuratorOn has a node say in its status that the curator runs there.
func (c *Cluster) CuratorOn(id string) { c.Update(func() { c.curatorOn = id }) }

// seen is a node as its cluster shows it.
func (c *Cluster) seen(node *clusterv1.Node) *clusterv1.Node {
	shown := proto.CloneOf(node)
	if shown != nil && c.volume.storage != nil && shown.GetRecord().GetId() == c.nodes[0].GetRecord().GetId() {
		shown.Status.Volume, shown.Status.Storage = c.volume.storage.GetKind(), proto.CloneOf(c.volume.storage)
	}
	if shown != nil && shown.GetRecord().GetId() == c.curatorOn {
		shown.Status.Instances = append(shown.Status.Instances, &clusterv1.InstanceStatus{
			Role: "curator", State: hostv1.InstanceState_INSTANCE_STATE_READY,
			Endpoints: []*rolev1.Endpoint{{Name: "reeve.cluster.v1", Address: c.curator}},
		})
	}
	return shown
}

// Update changes the cluster and wakes everybody who watches it.
func (c *Cluster) Update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.wake()
}

// wake tells everybody who watches that the cluster has changed. The cluster is locked.
func (c *Cluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// ChangeNode changes what the cluster knows of a node.
func (c *Cluster) ChangeNode(id string, change func(*clusterv1.Node)) error {
	var err error
	c.Update(func() {
		var node *clusterv1.Node
		if node, err = c.find(id); err == nil {
			change(node)
		}
	})
	return err
}

// watch calls send with the present state, and after every change.
func (c *Cluster) watch(ctx context.Context, send func() error) error {
	for {
		c.mu.Lock()
		changed := c.changed
		err := send()
		c.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Cluster) find(id string) (*clusterv1.Node, error) {
	for _, node := range c.nodes {
		if node.GetRecord().GetId() == id {
			return node, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "no node %s", id)
}

// SetMembership sets the membership of the first node.
func (c *Cluster) SetMembership(state hostv1.MembershipState, reason string) {
	c.Update(func() { c.member.State, c.member.Reason = state, reason })
}

// UntilWatched waits until somebody watches a node.
func (c *Cluster) UntilWatched(ctx context.Context) error {
	return c.until(ctx, func() bool { return c.watchers > 0 })
}

// until waits until so returns true. It asks again after every change.
func (c *Cluster) until(ctx context.Context, so func() bool) error {
	found := errors.New("found")
	err := c.watch(ctx, func() error {
		if so() {
			return found
		}
		return nil
	})
	if errors.Is(err, found) {
		return nil
	}
	return err
}

// Report replaces the status of a role that a node reports, with the present generation of its configuration. With nil the node reports nothing.
func (c *Cluster) Report(id, role string, instance *clusterv1.InstanceStatus) error {
	return c.ChangeNode(id, func(node *clusterv1.Node) { report(node, role, instance) })
}

func report(node *clusterv1.Node, role string, instance *clusterv1.InstanceStatus) {
	node.Status.Instances = slices.DeleteFunc(node.Status.Instances, func(other *clusterv1.InstanceStatus) bool { return other.GetRole() == role })
	if instance == nil {
		return
	}
	instance = proto.CloneOf(instance)
	instance.Role, instance.Since = role, timestamppb.New(Began)
	for _, assignment := range node.GetRecord().GetRoles() {
		if assignment.GetRole() == role {
			instance.ConfigurationGeneration = assignment.GetGeneration()
		}
	}
	node.Status.Instances = append(node.Status.Instances, instance)
}

// Assign gives a role to a node, which then reports the states of Outcome.
func (c *Cluster) Assign(id, role, configuration string) error {
	return c.ChangeNode(id, func(node *clusterv1.Node) { c.assign(node, role, configuration) })
}

func (c *Cluster) assign(node *clusterv1.Node, role, configuration string) {
	give(node.GetRecord(), role, configuration)
	c.begin(node, role, node.GetRecord().GetGeneration())
}

// give writes a role into the record of a node.
func give(record *clusterv1.NodeRecord, role, configuration string) {
	record.Generation++
	i := slices.IndexFunc(record.GetRoles(), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == role })
	if i < 0 {
		i = len(record.GetRoles())
		record.Roles = append(record.Roles, &clusterv1.RoleAssignment{Role: role})
	}
	record.Roles[i].Configuration, record.Roles[i].Generation = configuration, record.GetGeneration()
}

// begin has a node report the states of Outcome for an instance of a role, one after another.
func (c *Cluster) begin(node *clusterv1.Node, role string, number uint64) {
	states, ok := c.outcomes[role]
	if !ok {
		states = usualOutcome()
	}
	for _, state := range states {
		state.InstanceId = fmt.Sprintf("%s/%s/%d", node.GetRecord().GetId(), role, number)
		report(node, role, state)
		c.wake()
	}
}

// Outcome sets the states that a role goes through when it is assigned.
func (c *Cluster) Outcome(role string, states ...*clusterv1.InstanceStatus) {
	c.Update(func() { c.outcomes[role] = states })
}

// AddPlugin puts a plugin into the catalog.
func (c *Cluster) AddPlugin(plugin *clusterv1.PluginRecord) {
	c.Update(func() { c.plugins = append(c.plugins, plugin) })
}
