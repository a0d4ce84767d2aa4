package command_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/cli/internal/testcluster"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

var began = testcluster.Began

// cluster is a cluster with a real curator, whose nodes this test plays: they do what the cluster decides, report what the script says, and serve their own API. The first one is the local
// node, where it has a socket.
type cluster struct {
	*testcluster.Cluster
	owner   clusterv1.ManagementServiceClient
	close   []func() error
	working sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{}
	nodes   []*node
	member  *hostv1.Membership
	// outcomes are the states that a role goes through on a node; absent: Starting, Ready.
	outcomes map[string][]*clusterv1.InstanceStatus
	side     nodeSide
	volume   volume
}

// node is one of the cluster.
type node struct {
	*testcluster.Node
	// told is what the curator last told the node, and begun the generations of the configurations with which its roles were begun.
	told   *clusterv1.WatchResponse
	begun  map[string]uint64
	status *clusterv1.NodeStatus
}

// catalog is what a cluster begins with: plugins with one role of the same name.
func catalog(names ...string) []*clusterv1.PluginRecord {
	var plugins []*clusterv1.PluginRecord
	for _, name := range names {
		plugin := testcluster.Plugin(name)
		role := plugin.Manifest.Roles[0]
		switch name {
		case "hostsfile":
			role.Grants = []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{"path": "/etc/hosts"}}}
			plugin.Grants[0].Grants = role.GetGrants()
		case "lighthouse":
			role.ConfigurationSchema = `{"type": "object", "properties": {"path": {}, "deep": {}, "big": {}}, "additionalProperties": false}`
		}
		plugins = append(plugins, plugin)
	}
	return plugins
}

// newCluster makes a cluster whose first node has roles. ownerKey may be nil: the request has the public half.
func newCluster(request *clusterv1.BootstrapRequest, ownerKey ed25519.PrivateKey, clock string, nodes ...*node) (*cluster, error) {
	var members []*testcluster.Node
	for _, node := range nodes {
		members = append(members, node.Node)
	}
	made, err := testcluster.New(request, began, members...)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: made}
	if err := c.begin(true, nodes...); err != nil {
		return nil, errors.Join(err, c.end())
	}
	if ownerKey != nil {
		conn, err := made.Dial(ownerKey)
		if err != nil {
			return nil, errors.Join(err, c.end())
		}
		c.owner = clusterv1.NewManagementServiceClient(conn)
		c.close = append(c.close, conn.Close)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := errors.Join(c.startsAll(ctx), c.SetClock(scriptTime(clock))); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// begin makes nodes known to this test. Members do what the cluster decides.
func (c *cluster) begin(members bool, nodes ...*node) error {
	c.changed, c.outcomes, c.nodes = make(chan struct{}), make(map[string][]*clusterv1.InstanceStatus), nodes
	c.member = &hostv1.Membership{
		State: hostv1.MembershipState_MEMBERSHIP_STATE_HOME, Since: timestamppb.New(began), ClusterId: c.ID, TrustDomain: c.Domain(), NodeId: nodes[0].ID,
	}
	ctx, cancel := context.WithCancel(context.Background())
	// Closed last to first: the nodes hear no more before their connections end.
	defer func() { c.close = append(c.close, func() error { cancel(); return nil }) }()
	for _, node := range nodes {
		if err := node.Dial(); err != nil {
			return err
		}
		c.close = append(c.close, node.Close)
		if members {
			c.working.Go(func() { c.attend(ctx, node) })
		}
	}
	return nil
}

// newNode makes a node whose key comes of a number.
func newNode(number uint32) *node {
	member := testcluster.NewNode(number)
	return &node{Node: member, begun: make(map[string]uint64), status: &clusterv1.NodeStatus{
		NodeId: member.ID, Addresses: []string{"127.0.0.1"}, Isolation: clusterv1.Isolation_ISOLATION_OWN_UID, Volume: "plain", Version: "0.1.0",
	}}
}

// attend has a node do what the cluster decides, until ctx is done. While no curator answers it waits for one.
func (c *cluster) attend(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		watch, err := n.API().Watch(ctx, &clusterv1.WatchRequest{}, grpc.WaitForReady(true))
		for first := true; err == nil; first = false {
			var told *clusterv1.WatchResponse
			if told, err = watch.Recv(); err == nil {
				err = c.obey(ctx, n, told, first)
			}
		}
		if code := status.Code(err); code != codes.Unavailable && ctx.Err() == nil {
			if code != codes.PermissionDenied { // unless the node was removed
				_, _ = fmt.Fprintln(os.Stderr, "node", n.ID, "hears no more:", err)
			}
			return
		}
	}
}

// obey has a node do what the curator tells. With the first message of a curator the node sends a heartbeat.
func (c *cluster) obey(ctx context.Context, n *node, told *clusterv1.WatchResponse, first bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.wake()
	if first {
		if _, err := n.API().Heartbeat(ctx, &clusterv1.HeartbeatRequest{}); err != nil {
			return err
		}
	}
	n.told = told
	roles := told.GetNode().GetRoles()
	n.status.Instances = slices.DeleteFunc(n.status.Instances, func(instance *clusterv1.InstanceStatus) bool { return assignment(roles, instance.GetRole()) == nil })
	for role := range n.begun {
		if assignment(roles, role) == nil {
			delete(n.begun, role)
		}
	}
	for _, role := range roles {
		if n.begun[role.GetRole()] == role.GetGeneration() {
			continue
		}
		if err := c.start(ctx, n, role.GetRole(), role.GetGeneration()); err != nil {
			return err
		}
		n.begun[role.GetRole()] = role.GetGeneration()
	}
	return c.tell(ctx, n)
}

func assignment(roles []*clusterv1.RoleAssignment, role string) *clusterv1.RoleAssignment {
	for _, one := range roles {
		if one.GetRole() == role {
			return one
		}
	}
	return nil
}

// start has a node report the states of its outcome for an instance of a role, one after another. The cluster is locked.
func (c *cluster) start(ctx context.Context, n *node, role string, number uint64) error {
	states, ok := c.outcomes[role]
	if !ok {
		states = []*clusterv1.InstanceStatus{{State: hostv1.InstanceState_INSTANCE_STATE_STARTING}, {State: hostv1.InstanceState_INSTANCE_STATE_READY, Pid: 4711}}
	}
	for _, state := range states {
		state = proto.CloneOf(state)
		state.InstanceId = fmt.Sprintf("%s/%s/%d", n.ID, role, number)
		n.set(role, state)
		c.wake()
		if err := c.tell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// set replaces the status of a role on a node, with the present generation of its configuration. With nil the node reports nothing. The cluster is locked.
func (n *node) set(role string, instance *clusterv1.InstanceStatus) {
	n.status.Instances = slices.DeleteFunc(n.status.Instances, func(other *clusterv1.InstanceStatus) bool { return other.GetRole() == role })
	if instance == nil {
		return
	}
	instance = proto.CloneOf(instance)
	instance.Role, instance.Since = role, timestamppb.New(began)
	instance.ConfigurationGeneration = assignment(n.told.GetNode().GetRoles(), role).GetGeneration()
	n.status.Instances = append(n.status.Instances, instance)
}

// shown is the status of a node as others see it. The cluster is locked.
func (c *cluster) shown(n *node) *clusterv1.NodeStatus {
	shown := proto.CloneOf(n.status)
	if n == c.nodes[0] && c.volume.storage != nil {
		shown.Volume, shown.Storage = c.volume.storage.GetKind(), proto.CloneOf(c.volume.storage)
	}
	for _, instance := range shown.Instances {
		if instance.GetRole() == "curator" && n == c.nodes[0] {
			instance.Endpoints = []*rolev1.Endpoint{{Name: testcluster.ClusterCapability, Address: c.Curator()}}
		}
	}
	return shown
}

// tell reports the status of a node to the curator, if that runs. The cluster is locked, so obey does not wait for a curator: it may be gone.
func (c *cluster) tell(ctx context.Context, n *node, options ...grpc.CallOption) error {
	if !c.Serves() {
		return nil
	}
	_, err := n.API().ReportStatus(ctx, &clusterv1.ReportStatusRequest{Status: c.shown(n)}, options...)
	return err
}

// change changes what a node reports, and returns when the curator has heard it.
func (c *cluster) change(id string, change func(*node)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.find(id)
	if err != nil {
		return err
	}
	change(n)
	c.wake()
	return c.tell(context.Background(), n, grpc.WaitForReady(true))
}

func (c *cluster) find(id string) (*node, error) {
	for _, node := range c.nodes {
		if node.ID == id {
			return node, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "no node %s", id)
}

// report replaces the status of a role of a node.
func (c *cluster) report(id, role string, instance *clusterv1.InstanceStatus) error {
	return c.change(id, func(n *node) { n.set(role, instance) })
}

// setMembership sets the membership of the first node.
func (c *cluster) setMembership(state hostv1.MembershipState, reason string) {
	c.update(func() { c.member.State, c.member.Reason = state, reason })
}

// until waits until so returns true. It asks again after every change.
func (c *cluster) until(ctx context.Context, so func() bool) error {
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

// watch calls send with the present state, and after every change.
func (c *cluster) watch(ctx context.Context, send func() error) error {
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

// update changes the cluster and wakes everybody who watches it.
func (c *cluster) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.wake()
}

// wake tells everybody who watches that the cluster has changed. The cluster is locked.
func (c *cluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// startsAll waits until the nodes run all roles that they have, and the curator knows it.
func (c *cluster) startsAll(ctx context.Context) error {
	return c.until(ctx, func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *node) bool { return n.told == nil })
	})
}

// serveNode serves the own API of a node, with the certificate of another one.
func (c *cluster) serveNode(n, certified *node) error {
	certificate, err := certified.Certificate(context.Background())
	if err != nil {
		return err
	}
	address, err := c.ServeTLS(certificate, func(server *grpc.Server) { nodev1.RegisterNodeServiceServer(server, &nodeAPI{cluster: c, node: n}) }, c.locked()...)
	if err != nil {
		return err
	}
	return c.change(n.ID, func(n *node) { n.status.ApiAddress = address })
}

// serveLocal serves the own API of the first node on a socket.
func (c *cluster) serveLocal(socket string) error {
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
	local := c.Serve(listener, func(server *grpc.Server) {
		nodev1.RegisterNodeServiceServer(server, &nodeAPI{cluster: c, node: c.nodes[0], local: true, served: served})
	}, c.locked()...)
	c.update(func() { c.side.socket, c.side.local = socket, local })
	return nil
}

// locked are the options of a server whose calls lock the cluster, so that methods need no lock.
func (c *cluster) locked() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		defer c.wake()
		if err := c.opened(info.Server, info.FullMethod); err != nil {
			return nil, err
		}
		response, err := handler(ctx, request)
		if err != nil {
			return nil, err
		}
		// gRPC sends the answer later, when the lock is free and the original may change.
		return proto.Clone(response.(proto.Message)), nil
	}), grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c.mu.Lock()
		err := c.opened(service, info.FullMethod)
		c.mu.Unlock()
		if err != nil {
			return err
		}
		return handler(service, stream)
	})}
}

// end ends the nodes and the cluster.
func (c *cluster) end() error {
	var failures []error
	for _, closeOne := range slices.Backward(c.close) {
		failures = append(failures, closeOne())
	}
	err := errors.Join(append(failures, c.Close())...)
	c.working.Wait()
	return err
}
