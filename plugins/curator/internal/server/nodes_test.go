package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// watched follows a Watch stream.
type watched struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[clusterv1.WatchResponse]
	last   *clusterv1.WatchResponse
}

func watch(t *testing.T, client clusterv1.NodeServiceClient) *watched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := client.Watch(ctx, &clusterv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return &watched{t: t, stream: stream}
}

// await returns the first message that is accepted.
func (w *watched) await(what string, accept func(*clusterv1.WatchResponse) bool) *clusterv1.WatchResponse {
	w.t.Helper()
	for {
		response, err := w.stream.Recv()
		if err != nil {
			w.t.Fatalf("waiting for %s: %v", what, err)
		}
		if response.GetRevision() <= w.last.GetRevision() && w.last != nil {
			w.t.Errorf("revision %d follows %d", response.GetRevision(), w.last.GetRevision())
		}
		if w.last != nil {
			same := proto.CloneOf(response)
			same.Revision = w.last.Revision
			if proto.Equal(same, w.last) {
				w.t.Error("a message that says nothing new")
			}
		}
		w.last = response
		if accept(response) {
			return response
		}
	}
}

func TestWatch(t *testing.T) {
	c := newCluster(t)
	w := watch(t, c.asNode())
	first := w.await("the present state", func(*clusterv1.WatchResponse) bool { return true })
	if roles(first.GetNode()) != atFirst || first.GetNode().GetId() != c.id {
		t.Errorf("record: %v", first.GetNode())
	}
	var names []string
	for _, plugin := range first.GetPlugins() {
		names = append(names, plugin.GetName())
	}
	if diff := cmp.Diff([]string{"consensus", "curator"}, names); diff != "" {
		t.Errorf("plugins: %s", diff)
	}
	if diff := cmp.Diff(c.ca, first.GetCaCertificates()); diff != "" {
		t.Errorf("CA: %s", diff)
	}
	if !public(c.owner).Equal(ed25519.PublicKey(first.GetOwnerPublicKey())) {
		t.Error("another owner key")
	}
	if len(first.GetDirectory().GetNodes()) != 1 || first.GetDirectory().GetNodes()[0].GetHealthy() {
		t.Errorf("directory: %v", first.GetDirectory())
	}

	owner := c.asOwner()
	if _, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	w.await("the role with its plugin", func(r *clusterv1.WatchResponse) bool {
		return len(r.GetNode().GetRoles()) == 3 && len(r.GetPlugins()) == 3
	})

	status := &clusterv1.NodeStatus{
		Addresses: []string{"192.0.2.1", "2001:db8::1"},
		Instances: []*clusterv1.InstanceStatus{
			{Role: "store", State: hostv1.InstanceState_INSTANCE_STATE_STARTING, Reason: "not shown to others"},
			{
				Role: "api", State: hostv1.InstanceState_INSTANCE_STATE_READY, Values: map[string]string{"a": "b"},
				Endpoints: []*rolev1.Endpoint{{Name: "reeve.cluster.v1", Address: "192.0.2.1:7400"}},
			},
		},
	}
	if _, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: status}); err != nil {
		t.Fatal(err)
	}
	reported := w.await("the report", func(r *clusterv1.WatchResponse) bool { return len(r.GetDirectory().GetNodes()[0].GetRoles()) == 2 })
	want := &hostv1.DirectoryNode{
		NodeId: c.id, Addresses: status.GetAddresses(), Labels: map[string]string{"rack": "1"},
		Assigned: &hostv1.AssignedRoles{Roles: []string{"api", "hostsfile", "store"}},
		Roles: []*hostv1.DirectoryRole{
			{Role: "api", State: hostv1.InstanceState_INSTANCE_STATE_READY, Values: map[string]string{"a": "b"}, Endpoints: status.GetInstances()[1].GetEndpoints()},
			{Role: "store", State: hostv1.InstanceState_INSTANCE_STATE_STARTING},
		},
	}
	if diff := cmp.Diff(want, reported.GetDirectory().GetNodes()[0], protocmp.Transform()); diff != "" {
		t.Errorf("directory: %s", diff)
	}
	if reported.GetDirectory().GetRevision() <= first.GetDirectory().GetRevision() {
		t.Errorf("the directory's revision went from %d to %d", first.GetDirectory().GetRevision(), reported.GetDirectory().GetRevision())
	}
	before := reported.GetDirectory().GetRevision()
	// A report that says the same, and a record that is not of this node, are no news.
	if _, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: status}); err != nil {
		t.Fatal(err)
	}
	second := c.secondNode()
	both := w.await("the other node", func(r *clusterv1.WatchResponse) bool { return len(r.GetDirectory().GetNodes()) == 2 })
	if both.GetDirectory().GetRevision() <= before {
		t.Errorf("the directory's revision went from %d to %d", before, both.GetDirectory().GetRevision())
	}
	c.setState(identity.NodeID(public(second)), clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
	w.await("the other node's end", func(r *clusterv1.WatchResponse) bool { return len(r.GetDirectory().GetNodes()) == 1 })
}

// Who asks for differences is sent the directory once, and then what has changed of it; what has not is not sent again. So it is with what is its own, for who asks for that.
func TestWatchOfDifferences(t *testing.T) {
	t.Run("with what is its own", func(t *testing.T) { watchesDifferences(t, false) })
	t.Run("without what is the same", func(t *testing.T) { watchesDifferences(t, true) })
}

func watchesDifferences(t *testing.T, omits bool) {
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := c.asNode().Watch(ctx, &clusterv1.WatchRequest{Differences: true, OmitSame: omits})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, stream: stream}
	own := func(what string, r *clusterv1.WatchResponse, has bool) {
		t.Helper()
		if is := r.GetNode().GetId() == c.id && len(r.GetPlugins()) == 2 && len(r.GetCaCertificates()) > 0 && len(r.GetOwnerPublicKey()) > 0; is != has || !has && r.GetNode() != nil {
			t.Errorf("%s: what is the node's own is there: %t, want %t: %v", what, is, has, r)
		}
	}
	first := w.await("the present state", func(*clusterv1.WatchResponse) bool { return true })
	if len(first.GetDirectory().GetNodes()) != 1 || first.GetDifference() != nil {
		t.Errorf("the first message: %v", first)
	}
	own("the first message", first, true)
	second := c.secondNode()
	id := identity.NodeID(public(second))
	come := w.await("the other node", func(r *clusterv1.WatchResponse) bool { return r.GetDifference() != nil })
	difference := come.GetDifference()
	if come.GetDirectory() != nil || difference.GetFrom() != first.GetDirectory().GetRevision() || len(difference.GetNodes()) != 1 ||
		difference.GetNodes()[0].GetNodeId() != id || len(difference.GetGone()) != 0 {
		t.Errorf("the other node: %v", come)
	}
	own("the other node", come, !omits)
	if _, err := c.asOwner().AddOperator(t.Context(), &clusterv1.AddOperatorRequest{
		Name: "alice", Role: clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER, PublicKey: public(newKey(t)),
	}); err != nil {
		t.Fatal(err)
	}
	operator := w.await("the operator", func(r *clusterv1.WatchResponse) bool { return len(r.GetOperators()) == 1 })
	if operator.GetDirectory() != nil || operator.GetDifference() != nil {
		t.Errorf("an operator has changed the directory: %v", operator)
	}
	own("the operator", operator, true)
	c.setState(id, clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
	end := w.await("the other node's end", func(r *clusterv1.WatchResponse) bool { return r.GetDifference() != nil })
	own("the other node's end", end, !omits)
	gone := end.GetDifference()
	if gone.GetFrom() != difference.GetRevision() || len(gone.GetNodes()) != 0 || len(gone.GetGone()) != 1 || gone.GetGone()[0] != id {
		t.Errorf("the other node's end: %v", gone)
	}
}

// A node is healthy as long as its heartbeats come, whichever curator they come to.
func TestHeartbeat(t *testing.T) {
	c := newCluster(t)
	other := start(t, etcd, c.prefix, nil).ready()
	throughOther := clusterv1.NewNodeServiceClient(c.dial(other, c.svid))
	healthy := func(r *clusterv1.WatchResponse) bool { return r.GetDirectory().GetNodes()[0].GetHealthy() }
	sick := func(r *clusterv1.WatchResponse) bool { return !healthy(r) }
	w := watch(t, c.asNode())
	w.await("the present state", sick)
	response, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if response.GetTtlSeconds() != uint32(heartbeatTTL/time.Second) {
		t.Errorf("the TTL is %d s", response.GetTtlSeconds())
	}
	w.await("health", healthy)
	lease := c.heartbeat(c.id)
	if _, err := throughOther.Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	if again := c.heartbeat(c.id); again != lease {
		t.Errorf("the other curator used another lease: %x, not %x", again, lease)
	}
	if granted, err := c.client().TimeToLive(t.Context(), lease); err != nil || granted.GrantedTTL != int64(heartbeatTTL/time.Second) {
		t.Errorf("the lease ends by itself after %v: %v", granted, err)
	}
	c.silences(c.id)
	w.await("the end of the lease", sick)
	if _, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	w.await("health again", healthy)
}

// heartbeat is the lease of a node's heartbeat.
func (c *cluster) heartbeat(id string) clientv3.LeaseID {
	c.t.Helper()
	got, err := c.client().Get(c.t.Context(), "heartbeat/"+id)
	if err != nil || len(got.Kvs) != 1 {
		c.t.Fatalf("Get: %v, %v", got, err)
	}
	return clientv3.LeaseID(got.Kvs[0].Lease)
}

// silences ends the lease of a node's heartbeat, as if nothing more had come of the node for that long.
func (c *cluster) silences(id string) {
	c.t.Helper()
	if _, err := c.client().Revoke(c.t.Context(), c.heartbeat(id)); err != nil {
		c.t.Fatal(err)
	}
}

// A node that was off for longer than its SVID lives comes back by its key, and gets a new one.
func TestExpiredSVID(t *testing.T) {
	c := newCluster(t)
	authority, err := ca.Load(t.Context(), store.New(store.Config{Client: c.client(), AnswerWithin: patience}))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now().Add(-365 * 24 * time.Hour)
	old, err := before(t, authority, begun).IssueNode(public(c.node), begun)
	if err != nil {
		t.Fatal(err)
	}
	expired := clusterv1.NewNodeServiceClient(c.dial(c.curator, certificate(c.node, old)))
	_, err = expired.Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
	wantCode(t, err, codes.Unauthenticated, "ended at", "self-signed")

	byKey := clusterv1.NewNodeServiceClient(c.dial(c.curator, selfSigned(t, c.node)))
	response, err := byKey.IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.ca, response.GetCaCertificates()); diff != "" {
		t.Errorf("CA: %s", diff)
	}
	leaf, err := x509.ParseCertificate(response.GetSvid()[0])
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(leaf.NotAfter); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the SVID is valid for %v", left)
	}
	fresh := clusterv1.NewNodeServiceClient(c.dial(c.curator, certificate(c.node, response.GetSvid())))
	if _, err := fresh.Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Error(err)
	}
}

func TestReportStatus(t *testing.T) {
	c := newCluster(t)
	node := c.asNode()
	report := func(status *clusterv1.NodeStatus) error {
		_, err := node.ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: status})
		return err
	}
	ready := hostv1.InstanceState_INSTANCE_STATE_READY
	wantCode(t, report(nil), codes.InvalidArgument, "status")
	wantCode(t, report(&clusterv1.NodeStatus{NodeId: "reeve-other"}), codes.PermissionDenied, "only for itself")
	wantCode(t, report(&clusterv1.NodeStatus{Addresses: []string{"nowhere"}}), codes.InvalidArgument, "addresses[0]")
	wantCode(t, report(&clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "a", State: ready}, {Role: "a", State: ready}}}), codes.InvalidArgument, `"a" is listed twice`)
	wantCode(t, report(&clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "a"}}}), codes.InvalidArgument, "state")
	wantCode(t, report(&clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "../a", State: ready}}}), codes.InvalidArgument, "role")
	large := map[string]string{"large": strings.Repeat("x", 4097)}
	wantCode(t, report(&clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "a", State: ready, Values: large}}}), codes.InvalidArgument, "4097")
	crowded := make([]*rolev1.Endpoint, limits.Endpoints+1)
	wantCode(t, report(&clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "a", State: ready, Endpoints: crowded}}}), codes.InvalidArgument, "33 endpoints")
	wordy := &rolev1.Endpoint{Name: "http", Address: strings.Repeat("x", limits.Address+1)}
	wantCode(t, report(&clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "a", State: ready, Endpoints: []*rolev1.Endpoint{wordy}}}}), codes.InvalidArgument, "513")
	wantCode(t, report(&clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "a", State: ready, Values: map[string]string{"": "x"}}}}), codes.InvalidArgument, "name")
	wantCode(t, report(&clusterv1.NodeStatus{Version: strings.Repeat("x", 1<<20)}), codes.InvalidArgument, "bytes")

	began := time.Now()
	claimed := &clusterv1.NodeStatus{NodeId: c.id, Volume: "plain", Isolation: clusterv1.Isolation_ISOLATION_SHARED_UID}
	if err := report(claimed); err != nil {
		t.Fatal(err)
	}
	got, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	stored := got.GetNode().GetStatus()
	if stored.GetReported().AsTime().Before(began) {
		t.Errorf("reported at %v", stored.GetReported().AsTime())
	}
	claimed.Reported = stored.GetReported()
	if diff := cmp.Diff(claimed, stored, protocmp.Transform()); diff != "" {
		t.Errorf("status: %s", diff)
	}
}
