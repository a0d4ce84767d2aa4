package cluster_test

import (
	"context"
	"crypto/ed25519"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// patience is how long a test waits for what must come; a fake clock makes it short.
const patience = 5 * time.Minute

// node is the part of a node around the client: the values that it watches.
type node struct {
	t            *testing.T
	ca           *authority
	key          ed25519.PrivateKey
	identity     event.Value[*identity.Identity]
	capabilities event.Value[roles.Capabilities]
	status       event.Value[*clusterv1.NodeStatus]
	config       cluster.Config
	client       *cluster.Client
}

func knowsNone() []string { return nil }

// newNode makes a node that has an SVID, and whose client is not running yet.
func newNode(t *testing.T, dial func(context.Context, string) (net.Conn, error)) *node {
	t.Helper()
	n := &node{t: t, ca: newAuthority(t), key: newKey(t)}
	n.identity.Set(n.ca.node(n.key, n.ca.svid(n.key, time.Hour, 500*time.Hour)))
	n.capabilities.Set(nil)
	n.config = cluster.Config{
		Log:          hclog.New(&hclog.LoggerOptions{Output: t.Output(), Level: hclog.Debug}),
		Identity:     &n.identity,
		Capabilities: &n.capabilities,
		Status:       &n.status,
		Dial:         dial,
		ClockSet:     new(event.Value[int]),
		Incarnation:  event.New(&clusterv1.Incarnation{Number: 1}),
		Known:        knowsNone,
	}
	n.client = cluster.New(n.config)
	return n
}

// again gives the node a client as its next start would, with another configuration. The former one does not run any more.
func (n *node) again(change func(*cluster.Config)) {
	change(&n.config)
	n.client = cluster.New(n.config)
}

// run runs the client until the returned function is called.
func (n *node) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.client.Run(ctx) }()
	return func() {
		n.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			n.t.Errorf("Run: %v", err)
		}
	}
}

// curatorAt publishes a curator's endpoint.
func (n *node) curatorAt(instance, address string) {
	n.curatorIn(hostv1.InstanceState_INSTANCE_STATE_READY, instance, address)
}

// curatorIn is curatorAt for a curator that is in a state. Not by an update of what curatorAt set: the node may see both.
func (n *node) curatorIn(state hostv1.InstanceState, instance, address string) {
	n.capabilities.Set(roles.Capabilities{roles.CapabilityCluster: roles.Provider{
		InstanceID: instance,
		Role:       "curator",
		State:      state,
		Endpoints: []*rolev1.Endpoint{
			{Name: "metrics", Address: "127.0.0.1:1"},
			{Name: roles.CapabilityCluster, Address: address},
		},
	}})
}

// response is a Watch message for the node.
func (n *node) response(revision uint64) *clusterv1.WatchResponse {
	return &clusterv1.WatchResponse{
		Revision:       revision,
		Node:           &clusterv1.NodeRecord{Id: nodeID(n.key), Generation: revision, State: clusterv1.NodeState_NODE_STATE_UP},
		Plugins:        []*clusterv1.PluginRecord{{Name: "lighthouse", Version: "0.1.0"}},
		Directory:      &hostv1.Directory{Revision: revision, Nodes: []*hostv1.DirectoryNode{{NodeId: nodeID(n.key)}}},
		CaCertificates: [][]byte{n.ca.certificate.Raw},
		OwnerPublicKey: make([]byte, ed25519.PublicKeySize),
	}
}

// contact waits until contact is as it should be, and returns it.
func (n *node) contact(ok bool) membership.Contact {
	n.t.Helper()
	return await(n.t, n.client.Contact(), func(c membership.Contact) bool { return c.OK == ok })
}

// reason waits until contact is missing for a reason that accept takes.
func (n *node) reason(accept func(string) bool) string {
	n.t.Helper()
	return await(n.t, n.client.Contact(), func(c membership.Contact) bool { return !c.OK && accept(c.Reason) }).Reason
}

// await waits for a value.
func await[T any](t *testing.T, value *event.Value[T], accept func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := value.Wait(ctx, accept)
	if err != nil {
		last, _ := value.Get()
		t.Fatalf("waiting: %v; the last value was %+v", err, last)
	}
	return got
}

// reported is a status that differs by its version.
func reported(version string) *clusterv1.NodeStatus { return &clusterv1.NodeStatus{Version: version} }

func versions(reports []*clusterv1.NodeStatus) []string {
	var list []string
	for _, r := range reports {
		list = append(list, r.GetVersion())
	}
	return list
}

func equal(t *testing.T, what string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}
