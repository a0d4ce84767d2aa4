package server_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	stateNew             = clusterv1.NodeState_NODE_STATE_NEW
	stateStandby         = clusterv1.NodeState_NODE_STATE_STANDBY
	stateUp              = clusterv1.NodeState_NODE_STATE_UP
	stateDecommissioning = clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
	stateDecommissioned  = clusterv1.NodeState_NODE_STATE_DECOMMISSIONED
)

func TestDrain(t *testing.T) {
	c := newCluster(t)
	drain := func(id string, undo, dry bool) (*clusterv1.NodeRecord, error) {
		response, err := c.asOwner().DrainNode(t.Context(), &clusterv1.DrainNodeRequest{NodeId: id, Undo: undo, DryRun: dry})
		return response.GetNode(), err
	}
	if record, err := drain(c.id, false, true); err != nil || !record.GetDrained() {
		t.Errorf("%v, %v", record, err)
	}
	if state, _ := c.stored(); state.Nodes[c.id].GetDrained() {
		t.Error("the dry run drained it")
	}
	first, err := drain(c.id[:10], false, false)
	if err != nil || !first.GetDrained() {
		t.Fatalf("%v, %v", first, err)
	}
	if again, err := drain(c.id, false, false); err != nil || again.GetGeneration() != first.GetGeneration() {
		t.Errorf("%v, %v", again, err)
	}
	if record, err := drain(c.id, true, false); err != nil || record.GetDrained() {
		t.Errorf("%v, %v", record, err)
	}
	gone := c.nodeWith()
	c.setState(gone, stateDecommissioned)
	_, err = drain(gone, false, false)
	wantCode(t, err, codes.FailedPrecondition, gone, "Decommissioned")
}

// A node that lives leaves in order: its member first, then its roles, then itself; and it is told who decided that.
func TestDecommission(t *testing.T) {
	c := newCluster(t)
	key := c.secondNode("store", "api", "hostsfile")
	second := identity.NodeID(public(key))
	c.runs(c.id)
	c.tell(c.id, second)
	node := c.asOther(key)
	report := func(roles ...string) {
		t.Helper()
		status := &clusterv1.NodeStatus{}
		for _, role := range roles {
			status.Instances = append(status.Instances, &clusterv1.InstanceStatus{Role: role, State: hostv1.InstanceState_INSTANCE_STATE_READY, Pid: 7})
		}
		if _, err := node.ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	report("api", "hostsfile", "store")
	decommission := func(id string, dry bool) (*clusterv1.NodeRecord, error) {
		response, err := c.asOwner().DecommissionNode(t.Context(), &clusterv1.DecommissionNodeRequest{NodeId: id, DryRun: dry})
		return response.GetNode(), err
	}
	if record, err := decommission(second, true); err != nil || record.GetState() != stateDecommissioning {
		t.Errorf("%v, %v", record, err)
	}
	record, err := decommission(second, false)
	if err != nil {
		t.Fatal(err)
	}
	if record.GetState() != stateDecommissioning || len(record.GetRoles()) != 1 || !record.GetRoles()[0].GetLeaving() ||
		strings.Join(record.GetWipedRoles(), " ") != "api hostsfile" || record.GetRemoval().GetBy() != "owner" || record.GetSince() == nil {
		t.Errorf("%v", record)
	}
	if again, err := decommission(second, false); err != nil || again.GetGeneration() != record.GetGeneration() {
		t.Errorf("%v, %v", again, err)
	}
	if _, desired := c.stored(); len(desired.GetMembers()) != 1 {
		t.Errorf("%v", desired)
	}
	_, err = c.addRole(second, "hostsfile")
	wantCode(t, err, codes.FailedPrecondition, second, "leaves the cluster")
	// The other one is now the last.
	_, err = decommission(c.id, false)
	wantCode(t, err, codes.FailedPrecondition, c.id, "the last of the cluster", "reeve.cluster.v1", "reeve.consensus.v1")

	w := watch(t, node)
	w.await("the node, which is a member still", func(r *clusterv1.WatchResponse) bool { return len(r.GetDirectory().GetNodes()) == 2 })
	c.tell(c.id)
	w.await("the end of its roles", func(r *clusterv1.WatchResponse) bool {
		return len(r.GetNode().GetRoles()) == 0 && strings.Join(r.GetNode().GetWipedRoles(), " ") == "api hostsfile store"
	})
	if state, _ := c.stored(); state.Nodes[second].GetState() != stateDecommissioning {
		t.Errorf("with roles that run: %v", state.Nodes[second])
	}
	report()
	for {
		if _, err = w.stream.Recv(); err != nil {
			break
		}
	}
	wantRemoved(t, err, second, "decommissioned by owner")
	state, _ := c.stored()
	if tomb := state.Nodes[second]; tomb.GetState() != stateDecommissioned || string(public(key)) != string(tomb.GetPublicKey()) {
		t.Errorf("%v", tomb)
	}
	w = watch(t, c.asNode())
	w.await("a directory without it", func(r *clusterv1.WatchResponse) bool { return len(r.GetDirectory().GetNodes()) == 1 })
	if again, err := decommission(second, false); err != nil || again.GetState() != stateDecommissioned {
		t.Errorf("%v, %v", again, err)
	}
	never := c.nodeWith()
	c.setState(never, stateStandby)
	_, err = decommission(never, false)
	wantCode(t, err, codes.FailedPrecondition, "Standby", "reeve node delete")
}

func wantRemoved(t *testing.T, err error, node string, texts ...string) {
	t.Helper()
	wantCode(t, err, codes.PermissionDenied, texts...)
	for _, detail := range status.Convert(err).Details() {
		if removed, ok := detail.(*clusterv1.NodeRemoved); ok && removed.GetNodeId() == node && removed.GetReason() != "" {
			return
		}
	}
	t.Errorf("no tombstone in %v", status.Convert(err).Details())
}

// A node that is silent for long enough need not say that nothing runs on it.
func TestDecommissionOfASilentNode(t *testing.T) {
	c := newClusterOn(t, etcd, func(config *server.Config) { config.StewardSilence = 300 * time.Millisecond })
	key := c.secondNode("hostsfile")
	second := identity.NodeID(public(key))
	if _, err := c.asOther(key).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asOwner().DecommissionNode(t.Context(), &clusterv1.DecommissionNodeRequest{NodeId: second}); err != nil {
		t.Fatal(err)
	}
	c.silences(second)
	gone := c.await(second, "its end", func(node *clusterv1.Node) bool { return node.GetRecord().GetState() == stateDecommissioned })
	if gone.GetHealthy() {
		t.Error("it was alive")
	}
}

func TestDelete(t *testing.T) {
	c := newCluster(t)
	remove := func(id string, force, dry bool) (*clusterv1.DeleteNodeResponse, error) {
		return c.asOwner().DeleteNode(t.Context(), &clusterv1.DeleteNodeRequest{NodeId: id, Force: force, DryRun: dry})
	}
	// Whoever was never a member is sent away.
	for _, state := range []clusterv1.NodeState{stateNew, stateStandby} {
		id := c.nodeWith("hostsfile")
		c.setState(id, state)
		response, err := remove(id, false, false)
		if record := response.GetNode(); err != nil || record.GetState() != stateDecommissioned || !record.GetRemoval().GetDeleted() || len(record.GetRoles()) != 0 ||
			len(response.GetBypassed()) != 0 {
			t.Errorf("%s: %v, %v", state, response, err)
		}
	}
	_, err := remove(c.id, true, false)
	wantCode(t, err, codes.FailedPrecondition, c.id, "the last of the cluster", "reeve.cluster.v1")

	key := c.secondNode("store", "api")
	second, third := identity.NodeID(public(key)), c.nodeWith("store")
	c.runs(c.id)
	c.tell(c.id, second, third)
	if _, err := c.asOther(key).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = remove(second, false, false)
	wantCode(t, err, codes.FailedPrecondition, second+" is alive", "decommission", "--force")
	dry, err := remove(second, true, true)
	if err != nil || len(dry.GetBypassed()) != 1 || !contains(dry.GetBypassed()[0], "is alive") {
		t.Errorf("%v, %v", dry, err)
	}
	// With one of three that does not answer, no other can be done without.
	c.tell(c.id, second, third+" silent")
	_, err = remove(second, true, false)
	wantCode(t, err, codes.FailedPrecondition, "no majority", third, "decommission "+second)
	response, err := remove(third, false, false)
	if err != nil || response.GetNode().GetState() != stateDecommissioned {
		t.Fatalf("%v, %v", response, err)
	}
	if _, desired := c.stored(); len(desired.GetMembers()) != 2 {
		t.Errorf("%v", desired)
	}
	again, err := remove(third, false, false)
	if err != nil || again.GetNode().GetGeneration() != response.GetNode().GetGeneration() {
		t.Errorf("%v, %v", again, err)
	}
	// Of two that answer, neither can be done without from one moment to the next.
	c.tell(c.id, second)
	_, err = remove(second, true, false)
	wantCode(t, err, codes.FailedPrecondition, "no majority", "decommission "+second)
	// What the store last told of them may be old: this one does not answer, and the store is there.
	c.tell(c.id, second+" silent")
	_, err = remove(second, false, false)
	wantCode(t, err, codes.FailedPrecondition, "no majority")
	forced, err := remove(second, true, false)
	if err != nil || len(forced.GetBypassed()) < 1 || forced.GetNode().GetState() != stateDecommissioned {
		t.Errorf("%v, %v", forced, err)
	}
	entry := c.newest()
	if entry.GetRpc() != "DeleteNode" && entry.GetRpc() != "ListAudit" {
		t.Errorf("%v", entry)
	}
}

// What is kept for ever of a node that was removed is by what it is refused, and who decided that, not what the machine has said of itself or others of it.
func TestTombstone(t *testing.T) {
	c := newCluster(t)
	c.announce()
	m := c.machine()
	m.register(c.ticket(&clusterv1.CreateTicketRequest{Roles: []string{"hostsfile"}, Labels: map[string]string{"rack": "7"}, AutoApprove: true}), "hostsfile")
	if _, err := m.commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.as(m.start).ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{Addresses: []string{"192.0.2.7"}}}); err != nil {
		t.Fatal(err)
	}
	if before := c.nodeOf(m.id); before.GetRecord().GetRegistration() == nil || len(before.GetRecord().GetLabels()) == 0 || before.GetStatus() == nil {
		t.Fatalf("nothing is there that could be kept: %v", before)
	}
	if _, err := c.asOwner().DeleteNode(t.Context(), &clusterv1.DeleteNodeRequest{NodeId: m.id, Force: true}); err != nil {
		t.Fatal(err)
	}
	tomb := c.nodeOf(m.id)
	want := &clusterv1.NodeRecord{
		Id: m.id, PublicKey: public(m.key), JoinPublicKey: public(m.join), State: stateDecommissioned, Generation: tomb.GetRecord().GetGeneration(),
		Created: tomb.GetRecord().GetCreated(), Since: tomb.GetRecord().GetSince(), Removal: tomb.GetRecord().GetRemoval(),
	}
	if !proto.Equal(tomb.GetRecord(), want) || tomb.GetStatus() != nil || want.GetRemoval().GetBy() != "owner" || want.GetCreated() == nil || want.GetSince() == nil {
		t.Errorf("%v, want %v", tomb, want)
	}
	_, err := m.as(m.start).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
	wantRemoved(t, err, m.id, "deleted by owner")
	_, err = m.joins(m.join, m.start)
	wantRemoved(t, err, m.id, "deleted by owner")
}

// Whoever was deleted is none that answers, although the store has not told so yet: of three, only one can be done without from one moment to the next.
func TestDeleteTwiceKeepsTheQuorum(t *testing.T) {
	c := newCluster(t)
	second, third := c.nodeWith("store"), c.nodeWith("store")
	remove := func(id string, force bool) error {
		_, err := c.asOwner().DeleteNode(t.Context(), &clusterv1.DeleteNodeRequest{NodeId: id, Force: force})
		return err
	}
	c.tell(c.id, second, third)
	if err := remove(second, false); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		wantCode(t, remove(third, force), codes.FailedPrecondition, "no majority of its 3", second, "were removed", "decommission "+third)
	}
	c.tell(c.id, third)
	wantCode(t, remove(third, true), codes.FailedPrecondition, "no majority of its 2")
	// What is a learner by what the store last told may vote by now, and may not do so yet.
	c.tell(c.id, third+" learner")
	wantCode(t, remove(third, true), codes.FailedPrecondition, "no majority of its 2")
	fourth, fifth := c.nodeWith("store"), c.nodeWith("store")
	c.tell(c.id, third, fourth+" learner")
	wantCode(t, remove(third, true), codes.FailedPrecondition, "no majority of its 2")
	c.tell(c.id, third, fifth, fourth+" silent")
	wantCode(t, remove(third, true), codes.FailedPrecondition, "no majority of its 4", fourth+" do not answer")
	c.tell(c.id, third, fifth, fourth+" learner")
	if err := remove(third, false); err != nil {
		t.Error(err)
	}
}

// The last curator that runs stays: that another node has the role assigned is not enough.
func TestTheLastRunningCuratorStays(t *testing.T) {
	c := newCluster(t)
	key := c.secondNode("store", "api")
	second := identity.NodeID(public(key))
	c.tell(c.id, second)
	report := func(state hostv1.InstanceState) {
		t.Helper()
		_, err := c.asOther(key).ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{
			Instances: []*clusterv1.InstanceStatus{{Role: "api", State: state}, {Role: "store", State: hostv1.InstanceState_INSTANCE_STATE_READY}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(when string) {
		t.Helper()
		_, byRole := c.removeRole(c.id, "api")
		_, bySet := c.asOwner().SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{{Role: "store"}}})
		_, byEnd := c.asOwner().DecommissionNode(t.Context(), &clusterv1.DecommissionNodeRequest{NodeId: c.id, DryRun: true})
		_, byForce := c.asOwner().DeleteNode(t.Context(), &clusterv1.DeleteNodeRequest{NodeId: c.id, Force: true})
		for _, err := range []error{byRole, bySet, byEnd, byForce} {
			if status.Code(err) != codes.FailedPrecondition || !contains(err.Error(), "none would be left that is known to run") || !contains(err.Error(), second) {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	refused("of the other nothing is known")
	if _, err := c.asOther(key).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	refused("the other is alive and says nothing")
	for _, state := range []hostv1.InstanceState{hostv1.InstanceState_INSTANCE_STATE_STARTING, hostv1.InstanceState_INSTANCE_STATE_BACKOFF} {
		report(state)
		refused(state.String())
	}
	report(hostv1.InstanceState_INSTANCE_STATE_READY)
	c.silences(second)
	c.await(second, "its silence", func(node *clusterv1.Node) bool { return !node.GetHealthy() })
	refused("the other was ready and is silent")
	c.runs(second)
	report(hostv1.InstanceState_INSTANCE_STATE_DEGRADED)
	// What has no running curator itself is in nobody's way, and nor does it stand in another's.
	third := c.nodeWith("store", "api")
	if _, err := c.removeRole(third, "api"); err != nil {
		t.Error(err)
	}
	if _, err := c.removeRole(c.id, "api"); err != nil {
		t.Error(err)
	}
	_, err := c.removeRole(second, "api")
	wantCode(t, err, codes.FailedPrecondition, "the last of the cluster")
}

// A plugin whose curator is the last one that runs stays: that another plugin's role, which provides the same, is assigned to a node is not enough.
func TestThePluginOfTheLastRunningCuratorStays(t *testing.T) {
	c := newCluster(t)
	c.update(func(*store.State) *store.Change { // as of a cluster that was made with two
		manifest := plugin("other", &rolev1.RoleManifest{Name: "other", ConsensusUser: "other", Provides: []string{"reeve.cluster.v1"}})
		return &store.Change{Plugins: []*clusterv1.PluginRecord{{Name: "other", Version: "1.0.0", Digests: digestOf("a"), Manifest: manifest}}}
	})
	second := c.nodeWith("store", "other")
	c.tell(c.id, second)
	remove := func() error {
		_, err := c.asOwner().RemovePlugin(t.Context(), &clusterv1.RemovePluginRequest{Name: "curator", RemoveRoles: true, DryRun: true})
		return err
	}
	wantCode(t, remove(), codes.FailedPrecondition, `"curator"`, "none would be left that is known to run", second)
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	status := &clusterv1.NodeStatus{NodeId: second, Instances: []*clusterv1.InstanceStatus{{Role: "other", State: hostv1.InstanceState_INSTANCE_STATE_READY}}}
	_, beat := records.Beat(t.Context(), second, time.Hour, clientv3.NoLease)
	if err := errors.Join(records.PutStatus(t.Context(), status), beat); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Errorf("while another one runs: %v", err)
	}
}
