package server_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// TestRestore holds that the node of a restored store comes into the cluster that the store has, which stays what it was.
func TestRestore(t *testing.T) {
	c := newCluster(t)
	node := newKey(t)
	asked := request(node, c.owner)
	// Its machine has another build of one plugin, one for another platform, and one that is new.
	asked.Plugins[0].Manifest.Version, asked.Plugins[0].Version = "2.0.0", "2.0.0"
	other := map[string]string{"linux/arm64": "sha256:" + string(bytes.Repeat([]byte("a"), 64))}
	asked.Plugins[1].Digests = other
	asked.Plugins[2].Digests = digests
	asked.Plugins = append(asked.Plugins, record(plugin("more", &rolev1.RoleManifest{Name: "more"})))
	before, err := c.asOwner().ListPlugins(t.Context(), &clusterv1.ListPluginsRequest{})
	if err != nil {
		t.Fatal(err)
	}

	var wiped []string
	c.update(func(*store.State) *store.Change {
		change := new(store.Change)
		for range 70 { // more than one change takes
			key := public(newKey(t))
			wiped = append(wiped, identity.NodeID(key))
			change.Nodes = append(change.Nodes, &clusterv1.NodeRecord{Id: identity.NodeID(key), PublicKey: key, State: clusterv1.NodeState_NODE_STATE_UP, Generation: 1, WipedRoles: []string{"hostsfile"}})
		}
		return change
	})

	response, err := c.curator.service.Restore(t.Context(), &clusterv1.RestoreRequest{Node: asked})
	if err != nil {
		t.Fatal(err)
	}
	records, _ := c.stored()
	for _, id := range wiped {
		if record := records.Nodes[id]; len(record.GetWipedRoles()) != 0 || record.GetGeneration() != 2 {
			t.Errorf("what the node has of a role may be newer than the snapshot, and is deleted: %v", record)
		}
	}
	if diff := cmp.Diff(c.ca, response.GetCaCertificates()); diff != "" {
		t.Errorf("the CA changed: %s", diff)
	}
	id := identity.NodeID(public(node))
	if svid := certificate(node, response.GetNodeSvid()); leafOf(t, svid).URIs[0].String() != "spiffe://"+clusterID+".reeve/node/"+id {
		t.Errorf("SVID for %v", leafOf(t, svid).URIs)
	}
	got, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: id})
	if err != nil || got.GetNode().GetRecord().GetState() != clusterv1.NodeState_NODE_STATE_UP || len(got.GetNode().GetRecord().GetRoles()) != 2 {
		t.Errorf("the node: %v, %v", got, err)
	}
	document, err := c.client().Get(t.Context(), consensusv1.DesiredStateKey)
	if err != nil {
		t.Fatal(err)
	}
	desired := new(consensusv1.DesiredState)
	if err := proto.Unmarshal(document.Kvs[0].Value, desired); err != nil {
		t.Fatal(err)
	}
	members := []string{c.id, id}
	slices.Sort(members)
	if !slices.Equal(desired.GetMembers(), members) {
		t.Errorf("members %v, want those of the former store and the new one: %v", desired.GetMembers(), members)
	}
	after, err := c.asOwner().ListPlugins(t.Context(), &clusterv1.ListPluginsRequest{})
	if err != nil || len(after.GetPlugins()) != len(before.GetPlugins())+1 {
		t.Fatalf("plugins %v, %v", after.GetPlugins(), err)
	}
	if p := after.GetPlugins()[0]; p.GetVersion() != "2.0.0" || !p.GetGenesis() || p.GetPrevious().GetVersion() != "1.0.0" || p.GetGeneration() != 2 {
		t.Errorf("another build: %v", p)
	}
	if p := after.GetPlugins()[1]; len(p.GetDigests()) != 2 || p.GetDigests()["linux/arm64"] != other["linux/arm64"] || p.GetGeneration() != 2 {
		t.Errorf("one for another platform: %v", p)
	}
	if diff := cmp.Diff(before.GetPlugins()[2], after.GetPlugins()[2], protocmp.Transform()); diff != "" {
		t.Errorf("the same build: %s", diff)
	}
	if entries := c.log(20); !slices.ContainsFunc(entries, func(e *clusterv1.AuditEntry) bool { return e.GetRpc() == "Restore" }) {
		t.Errorf("the audit log has %v", entries)
	}

	// A core that lost the answer asks again.
	if _, err := c.curator.service.Restore(t.Context(), &clusterv1.RestoreRequest{Node: asked}); err != nil {
		t.Error(err)
	}
	if again, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: id}); err != nil || again.GetNode().GetRecord().GetGeneration() != 1 {
		t.Errorf("again: %v, %v", again, err)
	}
}

// TestRestoredNodeComesFirst holds that a curator of a restored store serves nobody before its node is in the cluster.
func TestRestoredNodeComesFirst(t *testing.T) {
	c := newCluster(t)
	node := newKey(t)
	second := start(t, etcd, c.prefix, func(config *server.Config) { config.NodeID = identity.NodeID(public(node)) })
	for range 50 { // which takes far longer than to begin to serve
		_, err := second.service.Restore(t.Context(), &clusterv1.RestoreRequest{Node: request(node, newKey(t))})
		wantCode(t, err, codes.FailedPrecondition, "owner key")
	}
	if state, _ := second.host.state.Get(); state != "" {
		t.Errorf("the curator serves a cluster without its node: it is %q", state)
	}
	if _, err := second.service.Restore(t.Context(), &clusterv1.RestoreRequest{Node: request(node, c.owner)}); err != nil {
		t.Fatal(err)
	}
	second.ready()
}

// TestRestoreWithAnotherBuild holds that former nodes keep the build that they have, and that what the owner has decided about grants stays so, with the reports of the build that is brought.
func TestRestoreWithAnotherBuild(t *testing.T) {
	c := newCluster(t)
	if _, err := c.asOwner().SetGrants(t.Context(), &clusterv1.SetGrantsRequest{Plugin: "extras", Grants: &clusterv1.RoleGrants{Role: "lighthouse"}}); err != nil {
		t.Fatal(err)
	}
	asked, key := request(newKey(t), c.owner), newKey(t)
	brought := asked.Plugins[2]
	brought.Manifest.Version, brought.Version, brought.Digests = "2.0.0", "2.0.0", digestOf("a")
	hosts := brought.Manifest.Roles[0]
	hosts.Grants = append(hosts.Grants, replaceFile("/etc/more"))
	brought.Manifest.Roles = append(brought.Manifest.Roles, &rolev1.RoleManifest{Name: "foghorn", Grants: []*rolev1.Grant{replaceFile("/etc/fog")}})
	brought.Grants[0].Grants = hosts.Grants
	brought.Grants = append(brought.Grants, &clusterv1.RoleGrants{Role: "foghorn", Grants: []*rolev1.Grant{replaceFile("/etc/fog")}})
	envelope := signReport(t, key, reportOn("a", "2.0.0"))
	asked.Reports, asked.ReportsKey = [][]byte{envelope}, public(key)
	if _, err := c.curator.service.Restore(t.Context(), &clusterv1.RestoreRequest{Node: asked}); err != nil {
		t.Fatal(err)
	}
	after := c.listed("extras")
	if p := after.GetPrevious(); p.GetVersion() != "1.0.0" || p.GetDigests()["linux/amd64"] != digests["linux/amd64"] || after.GetVersion() != "2.0.0" {
		t.Errorf("the builds: %v", after)
	}
	want := []*clusterv1.RoleGrants{{Role: "hostsfile", Grants: []*rolev1.Grant{replaceFile("/etc/more")}}, {Role: "foghorn", Grants: []*rolev1.Grant{replaceFile("/etc/fog")}}}
	if diff := cmp.Diff(want, after.GetGrants(), protocmp.Transform()); diff != "" {
		t.Errorf("the grants: %s", diff)
	}
	got, err := c.asOwner().GetPluginReport(t.Context(), &clusterv1.GetPluginReportRequest{Plugin: "extras", Digest: brought.Digests["linux/amd64"]})
	if len(after.GetReports()) != 1 || err != nil || !bytes.Equal(got.GetReport(), envelope) {
		t.Errorf("the report: %v, %v", after.GetReports(), err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	c := newCluster(t)
	for name, test := range map[string]struct {
		change func(*clusterv1.BootstrapRequest)
		code   codes.Code
		says   []string
	}{
		"another cluster": {func(r *clusterv1.BootstrapRequest) { r.ClusterId = "other" }, codes.FailedPrecondition, []string{clusterID, "other"}},
		"another owner":   {func(r *clusterv1.BootstrapRequest) { r.OwnerPublicKey = public(newKey(t)) }, codes.FailedPrecondition, []string{"bootstrap.owner_public_key"}},
		"no key":          {func(r *clusterv1.BootstrapRequest) { r.NodePublicKey = nil }, codes.InvalidArgument, []string{"node_public_key"}},
		"a role of another plugin": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins[2].Name, r.Plugins[2].Manifest.Name = "theirs", "theirs"
		}, codes.FailedPrecondition, []string{"theirs", "extras"}},
		"no provider of the store":  {func(r *clusterv1.BootstrapRequest) { r.Roles = r.Roles[1:] }, codes.InvalidArgument, []string{"reeve.consensus.v1"}},
		"a role that nobody offers": {func(r *clusterv1.BootstrapRequest) { r.Roles[0].Role = "nobody" }, codes.InvalidArgument, []string{"nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := request(newKey(t), c.owner)
			test.change(asked)
			_, err := c.curator.service.Restore(t.Context(), &clusterv1.RestoreRequest{Node: asked})
			wantCode(t, err, test.code, test.says...)
		})
	}
}

// TestNodesAreToldTheGeneration holds that a node hears which generation of the store its curator has, and that it becomes another one.
func TestNodesAreToldTheGeneration(t *testing.T) {
	c := newCluster(t)
	stream, err := c.asNode().Watch(t.Context(), &clusterv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.GetStoreGeneration() != 0 || first.GetStoreGenerationId() != nil {
		t.Fatalf("%v, %v", first, err)
	}
	generation := &consensusv1.StoreGeneration{Number: 3, Id: bytes.Repeat([]byte{7}, 16)}
	content, err := proto.Marshal(generation)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client().Put(t.Context(), consensusv1.StoreGenerationKey, string(content)); err != nil {
		t.Fatal(err)
	}
	for {
		next, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if next.GetStoreGeneration() == 3 && bytes.Equal(next.GetStoreGenerationId(), generation.Id) {
			return
		}
	}
}

// TestTombstoneIsOfAGeneration holds that a node that was removed hears which generation of the store says so, whatever it asks.
func TestTombstoneIsOfAGeneration(t *testing.T) {
	c := newCluster(t)
	content, err := proto.Marshal(&consensusv1.StoreGeneration{Number: 3, Id: bytes.Repeat([]byte{7}, 16)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client().Put(t.Context(), consensusv1.StoreGenerationKey, string(content)); err != nil {
		t.Fatal(err)
	}
	key := c.secondNode("hostsfile")
	id := identity.NodeID(public(key))
	if _, err := c.asOwner().DeleteNode(t.Context(), &clusterv1.DeleteNodeRequest{NodeId: id}); err != nil {
		t.Fatal(err)
	}
	stream, err := clusterv1.NewNodeServiceClient(c.dial(c.curator, selfSigned(t, key))).Watch(t.Context(), &clusterv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	details := status.Convert(err).Details()
	if len(details) != 1 {
		t.Fatal(err)
	}
	if removed, ok := details[0].(*clusterv1.NodeRemoved); !ok || removed.GetStoreGeneration() != 3 || removed.GetStoreGenerationId()[0] != 7 {
		t.Errorf("%v", details[0])
	}
}

// TestStartsAfterRestore holds that a node goes on in a restored store which knows an earlier start of it, and that no start before the one that counts ever does.
func TestStartsAfterRestore(t *testing.T) {
	c := newCluster(t)
	c.announce()
	m := c.member("store")
	if err := m.beat(incarnation(5)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.curator.service.Restore(t.Context(), &clusterv1.RestoreRequest{Node: request(newKey(t), c.owner)}); err != nil {
		t.Fatal(err)
	}
	wantRefusedStart(t, m.beat(incarnation(4)), false, 5)
	// The node has started four times since the snapshot was taken.
	ninth := incarnation(9)
	if err := m.beat(ninth); err != nil {
		t.Errorf("a later start than the store knows: %v", err)
	}
	wantRefusedStart(t, m.beat(incarnation(8)), false, 9)
	if err := m.beat(ninth); err != nil {
		t.Errorf("the one that counts: %v", err)
	}
}
