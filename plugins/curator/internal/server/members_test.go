package server_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// tell writes what the leader of the consensus store tells, as an answer to what is desired now. A member is "ID", with " learner", " silent", " joining", " doubted" or " damaged" behind it.
func (c *cluster) tell(members ...string) {
	c.t.Helper()
	told := new(consensusv1.StoreState)
	for _, member := range members {
		id, how, _ := strings.Cut(member, " ")
		state := &consensusv1.StoreStateMember{NodeId: id, MemberId: "m" + id, Healthy: true}
		switch how {
		case "learner":
			state.Learner = true
		case "silent":
			state.Healthy = false
		case "doubted", "damaged":
			state.Damage, state.DamageCertain = "it holds other data", how == "damaged"
		case "joining":
			state.MemberId, state.Healthy, state.Step = "", false, "it waits for the node to ask for its place"
		}
		told.Members = append(told.Members, state)
	}
	client := c.client()
	got, err := client.Get(c.t.Context(), consensusv1.DesiredStateKey)
	if err != nil || len(got.Kvs) != 1 {
		c.t.Fatalf("Get: %v, %v", got, err)
	}
	told.DesiredRevision = got.Kvs[0].ModRevision
	put(c.t, client, told)
}

func put(t testing.TB, client *clientv3.Client, told *consensusv1.StoreState) {
	t.Helper()
	value, err := proto.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), consensusv1.StoreStateKey, string(value)); err != nil {
		t.Fatal(err)
	}
}

// nodeWith adds a node that is Up, and returns its ID.
func (c *cluster) nodeWith(roles ...string) string {
	c.t.Helper()
	return identity.NodeID(public(c.secondNode(roles...)))
}

// runs has nodes report that they live and that their curator is ready, for longer than a test takes.
func (c *cluster) runs(ids ...string) {
	c.t.Helper()
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	for _, id := range ids {
		status := &clusterv1.NodeStatus{NodeId: id, Instances: []*clusterv1.InstanceStatus{{Role: "api", State: hostv1.InstanceState_INSTANCE_STATE_READY}}}
		_, beat := records.Beat(c.t.Context(), id, time.Hour, clientv3.NoLease)
		if err := errors.Join(records.PutStatus(c.t.Context(), status), beat); err != nil {
			c.t.Fatal(err)
		}
	}
}

// await waits until a node is as it should be.
func (c *cluster) await(id, what string, accept func(*clusterv1.Node) bool) *clusterv1.Node {
	c.t.Helper()
	stream, err := c.asOwner().WatchNode(inTime(c.t), &clusterv1.WatchNodeRequest{NodeId: id})
	if err != nil {
		c.t.Fatal(err)
	}
	var last *clusterv1.Node
	for {
		response, err := stream.Recv()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v; the last was %v", what, err, last)
		}
		if last = response.GetNode(); accept(last) {
			return last
		}
	}
}

func (c *cluster) removeRole(id, role string) (*clusterv1.NodeRecord, error) {
	response, err := c.asOwner().RemoveRole(inTime(c.t), &clusterv1.RemoveRoleRequest{NodeId: id, Role: role})
	return response.GetNode(), err
}

func (c *cluster) addRole(id, role string) (*clusterv1.NodeRecord, error) {
	response, err := c.asOwner().AddRole(inTime(c.t), &clusterv1.AddRoleRequest{NodeId: id, Role: role})
	return response.GetNode(), err
}

// A member of the consensus store leaves before its role does, and the role can be taken back until then.
func TestLeaving(t *testing.T) {
	c := newCluster(t)
	second := c.nodeWith("store", "api", "lighthouse")
	c.runs(c.id)
	c.tell(c.id, second)

	_, err := c.removeRole(second, "store")
	wantCode(t, err, codes.FailedPrecondition, `role "api" of node `+second, `role "lighthouse" of node `+second, "requires")
	for _, role := range []string{"api", "lighthouse"} {
		if _, err := c.removeRole(second, role); err != nil {
			t.Fatal(err)
		}
	}
	record, err := c.removeRole(second, "store")
	if err != nil {
		t.Fatal(err)
	}
	if roles := record.GetRoles(); len(roles) != 1 || !roles[0].GetLeaving() || roles[0].GetGeneration() != 1 {
		t.Errorf("%v", record)
	}
	if _, desired := c.stored(); strings.Join(desired.GetMembers(), " ") != c.id {
		t.Errorf("the members are to be %v", desired.GetMembers())
	}
	// Nothing may be built on it, and none of its kind beside it.
	_, err = c.addRole(second, "lighthouse")
	wantCode(t, err, codes.FailedPrecondition, `requires "store"`)
	// Again is the same.
	again, err := c.removeRole(second, "store")
	if err != nil || again.GetGeneration() != record.GetGeneration() {
		t.Errorf("%v, %v", again, err)
	}

	back, err := c.addRole(second, "store")
	if err != nil || len(back.GetRoles()) != 1 || back.GetRoles()[0].GetLeaving() || back.GetRoles()[0].GetGeneration() != 1 {
		t.Errorf("%v, %v", back, err)
	}
	if _, desired := c.stored(); len(desired.GetMembers()) != 2 {
		t.Errorf("the members are to be %v", desired.GetMembers())
	}

	if _, err := c.removeRole(second, "store"); err != nil {
		t.Fatal(err)
	}
	// What was said of an earlier decision means nothing: only that the store has no member of it, now.
	put(t, c.client(), &consensusv1.StoreState{DesiredRevision: 1, Members: []*consensusv1.StoreStateMember{{NodeId: c.id, MemberId: "m", Healthy: true}}})
	c.await(second, "the old word of the store", func(node *clusterv1.Node) bool { return node.GetStore() == nil })
	if state, _ := c.stored(); roles(state.Nodes[second]) == "" {
		t.Error("the role is gone by an old word")
	}
	c.tell(c.id)
	gone := c.await(second, "the end of the role", func(node *clusterv1.Node) bool { return len(node.GetRecord().GetRoles()) == 0 })
	if wiped := gone.GetRecord().GetWipedRoles(); len(wiped) != 1 || wiped[0] != "store" {
		t.Errorf("wiped: %v", wiped)
	}
	entry := c.log(20)
	found := false
	for _, e := range entry {
		found = found || e.GetRpc() == "RoleLeft" && e.GetCaller() == "curator" && e.GetParameters()["node_id"] == second && e.GetCode() == "OK"
	}
	if !found {
		t.Errorf("the audit log says nothing of it: %v", entry)
	}
	if _, err := c.addRole(second, "store"); err != nil {
		t.Errorf("added again: %v", err)
	}
}

// A node that never had a member need not leave.
func TestLeavingWithoutAMember(t *testing.T) {
	c := newCluster(t)
	second := c.nodeWith("store")
	c.tell(c.id, second+" joining")
	record, err := c.removeRole(second, "store")
	if err != nil || len(record.GetRoles()) != 0 {
		t.Errorf("%v, %v", record, err)
	}
	third := c.nodeWith("store")
	// The store has not answered yet: it may have taken the node in.
	record, err = c.removeRole(third, "store")
	if err != nil || len(record.GetRoles()) != 1 || !record.GetRoles()[0].GetLeaving() {
		t.Errorf("%v, %v", record, err)
	}
}

func TestQuorumIsKept(t *testing.T) {
	c := newCluster(t)
	second, third := c.nodeWith("store"), c.nodeWith("store")
	_, err := c.removeRole(second, "store")
	wantCode(t, err, codes.FailedPrecondition, "has not told yet", second)

	c.tell(c.id, second, third+" silent")
	_, err = c.removeRole(second, "store")
	wantCode(t, err, codes.FailedPrecondition, "no quorum without "+second, third+" do not answer")
	_, err = c.asOwner().SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: second})
	wantCode(t, err, codes.FailedPrecondition, third)
	if _, err := c.removeRole(third, "store"); err != nil {
		t.Errorf("the one that does not answer: %v", err)
	}
	c.tell(c.id, second)
	c.await(third, "the end of the third", func(node *clusterv1.Node) bool { return len(node.GetRecord().GetRoles()) == 0 })

	// Whoever has only just come does not vote yet.
	if _, err := c.addRole(second, "api"); err != nil {
		t.Fatal(err)
	}
	c.runs(c.id, second)
	c.tell(c.id, second+" learner")
	_, err = c.asOwner().SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: c.id})
	wantCode(t, err, codes.FailedPrecondition, "no voting member", c.id, "wait until "+second)
	if _, err := c.asOwner().SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: second}); err != nil {
		t.Errorf("a learner may go: %v", err)
	}
	// One that leaves is none to stay behind.
	_, err = c.asOwner().SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: c.id})
	wantCode(t, err, codes.FailedPrecondition, "the last of the cluster", "reeve.consensus.v1")
}

// That a member stays after all can cost the quorum as well, while others leave; and what is wrong already may be made better.
func TestTakingBackKeepsTheQuorum(t *testing.T) {
	c := newCluster(t)
	second, third, fourth := c.nodeWith("store"), c.nodeWith("store"), c.nodeWith("store")
	c.tell(c.id, second, third+" silent", fourth)
	for _, id := range []string{third, second, fourth} {
		if _, err := c.removeRole(id, "store"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.addRole(third, "store")
	wantCode(t, err, codes.FailedPrecondition, "no quorum without", second, fourth, "those of "+third)
	if _, err := c.addRole(second, "store"); err != nil {
		t.Fatal(err)
	}
	// Two more have died since.
	c.tell(c.id, second+" silent", third+" silent", fourth)
	if _, err := c.addRole(fourth, "store"); err != nil {
		t.Errorf("what makes it better: %v", err)
	}
	_, err = c.removeRole(fourth, "store")
	wantCode(t, err, codes.FailedPrecondition, "no quorum without", second)
}

// A plugin by which members of the store run cannot be taken away under them.
func TestRemovePluginOfMembers(t *testing.T) {
	c := newCluster(t)
	c.offer(plugin("other", &rolev1.RoleManifest{Name: "other-store"}), digestOf("a"))
	// Only a plugin of the first hour may provide it: a second one comes to it as a new version of the catalog would.
	c.update(func(state *store.State) *store.Change {
		record := proto.CloneOf(state.Plugins["other"])
		record.Manifest.Roles[0].Provides = []string{store.CapabilityConsensus}
		return &store.Change{Plugins: []*clusterv1.PluginRecord{record}}
	})
	second := c.nodeWith("other-store")
	c.tell(c.id, second)
	remove := func() error {
		_, err := c.asOwner().RemovePlugin(t.Context(), &clusterv1.RemovePluginRequest{Name: "other", RemoveRoles: true})
		return err
	}
	wantCode(t, remove(), codes.FailedPrecondition, "members of the consensus store run by it", second)
	if _, err := c.removeRole(second, "other-store"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, remove(), codes.FailedPrecondition, second)
	c.tell(c.id)
	c.await(second, "the end of its role", func(node *clusterv1.Node) bool { return len(node.GetRecord().GetRoles()) == 0 })
	if err := remove(); err != nil {
		t.Error(err)
	}
}

// What the store tells is shown with the nodes, and nothing breaks if nobody can read it.
func TestStoreMembership(t *testing.T) {
	c := newCluster(t)
	get := func() *clusterv1.StoreMembership {
		t.Helper()
		response, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: c.id})
		if err != nil {
			t.Fatal(err)
		}
		return response.GetNode().GetStore()
	}
	if told := get(); told.GetMemberId() != "" || !strings.Contains(told.GetStep(), "not taken note") {
		t.Errorf("before the store has said anything: %v", told)
	}
	c.tell(c.id + " learner")
	if told := get(); told.GetMemberId() != "m"+c.id || !told.GetLearner() {
		t.Errorf("%v", told)
	}
	c.await(c.id, "its membership", func(node *clusterv1.Node) bool { return node.GetStore().GetLearner() })
	for _, damage := range []*consensusv1.StoreState{
		{Members: []*consensusv1.StoreStateMember{{MemberId: "m"}}},
		{Members: []*consensusv1.StoreStateMember{{NodeId: "a"}, {NodeId: "a"}}},
	} {
		put(t, c.client(), damage)
		if told := get(); told.GetMemberId() != "" {
			t.Errorf("%v", told)
		}
	}
	if _, err := c.client().Put(t.Context(), consensusv1.StoreStateKey, "\xff nonsense"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.addRole(c.id, "hostsfile"); err != nil {
		t.Errorf("with what nobody can read: %v", err)
	}
}

// leader does what the consensus role does, until ctx is done: one step at a time, and none that would cost the quorum.
type leader struct {
	t      testing.TB
	client *clientv3.Client
	lost   []string // steps that were wanted and would have cost the quorum
}

// step makes what is desired true, as far as one step goes, and tells of it. dead are the members that do not answer.
func (l *leader) step(ctx context.Context, dead map[string]bool) error {
	got, err := l.client.Txn(ctx).Then(clientv3.OpGet(consensusv1.DesiredStateKey), clientv3.OpGet(consensusv1.StoreStateKey)).Commit()
	if err != nil {
		return err
	}
	desired, told := new(consensusv1.DesiredState), new(consensusv1.StoreState)
	at := got.Responses[0].GetResponseRange().GetKvs()[0]
	if err := proto.Unmarshal(at.Value, desired); err != nil {
		return err
	}
	for _, kv := range got.Responses[1].GetResponseRange().GetKvs() {
		if err := proto.Unmarshal(kv.Value, told); err != nil {
			return err
		}
	}
	before := proto.CloneOf(told)
	told.DesiredRevision = at.ModRevision
	for _, member := range told.GetMembers() {
		member.Healthy = !dead[member.GetNodeId()]
	}
	wanted := make(map[string]bool)
	for _, id := range desired.GetMembers() {
		wanted[id] = true
	}
	// Any member that may go and that the store can do without; that there is none is a step that was not to be.
	unwanted := func(member *consensusv1.StoreStateMember) bool { return !wanted[member.GetNodeId()] }
	safe := func(member *consensusv1.StoreStateMember) bool {
		answer := 0
		for _, other := range told.GetMembers() {
			if other != member && other.GetHealthy() {
				answer++
			}
		}
		return 2*answer > len(told.GetMembers())-1
	}
	if i := slices.IndexFunc(told.GetMembers(), func(member *consensusv1.StoreStateMember) bool { return unwanted(member) && safe(member) }); i >= 0 {
		told.Members = slices.Delete(told.Members, i, i+1)
	} else if i := slices.IndexFunc(told.GetMembers(), unwanted); i >= 0 {
		l.lost = append(l.lost, told.GetMembers()[i].GetNodeId())
	}
	for id := range wanted {
		if !strings.Contains(told.String(), id) && !dead[id] {
			told.Members = append(told.Members, &consensusv1.StoreStateMember{NodeId: id, MemberId: "m" + id, Healthy: true})
		}
	}
	if proto.Equal(before, told) {
		return nil
	}
	value, err := proto.Marshal(told)
	if err != nil {
		return err
	}
	_, err = l.client.Put(ctx, consensusv1.StoreStateKey, string(value))
	return err
}

// asOther is the node service as a node calls it that is not the first.
func (c *cluster) asOther(key ed25519.PrivateKey) clusterv1.NodeServiceClient {
	return clusterv1.NewNodeServiceClient(c.dial(c.curator, selfSigned(c.t, key)))
}
