package cache_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// keep writes a record.
func (r *rig) keep(key string, record proto.Message) {
	r.t.Helper()
	value, err := proto.Marshal(record)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Put(r.t.Context(), key, string(value)); err != nil {
		r.t.Fatal(err)
	}
}

// has gives roles to a node: those that begin with "-" leave.
func (r *rig) has(id string, roles ...string) {
	r.t.Helper()
	known := r.await("the node", func(snapshot *cache.Snapshot) bool { return snapshot.Nodes[id] != nil })
	node := proto.CloneOf(known.Nodes[id])
	node.Roles = nil
	for _, role := range roles {
		leaving := role[0] == '-'
		if leaving {
			role = role[1:]
		}
		node.Roles = append(node.Roles, &clusterv1.RoleAssignment{Role: role, Leaving: leaving})
	}
	r.keep("nodes/"+id, node)
}

func instance(role string, endpoints ...*rolev1.Endpoint) *clusterv1.InstanceStatus {
	return &clusterv1.InstanceStatus{Role: role, State: hostv1.InstanceState_INSTANCE_STATE_READY, Endpoints: endpoints}
}

func rolesOf(snapshot *cache.Snapshot) (roles []string) {
	for _, node := range snapshot.Directory.GetNodes() {
		for _, role := range node.GetRoles() {
			roles = append(roles, role.GetRole())
		}
	}
	return roles
}

// A node is shown with the roles that it was given, those that leave included, and not with what else it says.
func TestDirectoryHasAssignedRolesOnly(t *testing.T) {
	r := run(t, nil)
	id := r.put()
	r.keep("status/"+id, &clusterv1.NodeStatus{NodeId: id, Instances: []*clusterv1.InstanceStatus{instance("lamp"), instance("store"), instance("vault")}})
	r.has(id, "lamp", "-store", "stays-away")
	r.await("its roles", func(snapshot *cache.Snapshot) bool { return slices.Equal(rolesOf(snapshot), []string{"lamp", "store"}) })
	r.has(id)
	r.await("no roles", func(snapshot *cache.Snapshot) bool {
		return snapshot.Statuses[id] != nil && len(snapshot.Nodes[id].GetRoles()) == 0 && len(rolesOf(snapshot)) == 0
	})
}

// A node is shown with the address of its own API if it is one. Any other text would take room in everybody's directory.
func TestDirectoryHasTheAddressOfTheNodesAPI(t *testing.T) {
	r := run(t, nil)
	id := r.put()
	for _, c := range []struct{ reported, shown string }{{"[2001:db8::1]:7444", "[2001:db8::1]:7444"}, {"name.example:7444", ""}, {"192.0.2.1:7444", "192.0.2.1:7444"}, {strings.Repeat("x", 4096), ""}, {"[fe80::1%" + strings.Repeat("x", 4000) + "]:1", ""}} {
		r.keep("status/"+id, &clusterv1.NodeStatus{NodeId: id, ApiAddress: c.reported})
		snapshot := r.await(c.reported, func(snapshot *cache.Snapshot) bool { return snapshot.Statuses[id].GetApiAddress() == c.reported })
		if nodes := snapshot.Directory.GetNodes(); len(nodes) != 1 || nodes[0].GetApiAddress() != c.shown {
			t.Errorf("%q: %v", c.reported, nodes)
		}
	}
}

// One node cannot have machines turn to nobody else: one address of it counts, and only that of the role that serves the cluster API.
func TestCuratorsOfAllNodes(t *testing.T) {
	r := run(t, nil)
	r.keep("plugins/curator", &clusterv1.PluginRecord{Name: "curator", Manifest: &rolev1.Manifest{Name: "curator", Roles: []*rolev1.RoleManifest{
		{Name: "api", Provides: []string{"reeve.cluster.v1"}}, {Name: "spare", Provides: []string{"reeve.cluster.v1"}}, {Name: "lamp"},
	}}})
	const name = "reeve.cluster.v1"
	published := func(node int, n int) (endpoints []*rolev1.Endpoint) {
		for port := range n {
			endpoints = append(endpoints, &rolev1.Endpoint{Name: name, Address: fmt.Sprintf("192.0.2.%d:%d", node, port+1)})
		}
		return endpoints
	}
	greedy, modest := r.put(), r.put()
	for id, status := range map[string]*clusterv1.NodeStatus{
		greedy: {Instances: []*clusterv1.InstanceStatus{
			instance("api", append([]*rolev1.Endpoint{{Name: name, Address: "nowhere"}}, published(1, 40)...)...), instance("spare", published(2, 40)...), instance("lamp", published(66, 1)...),
		}},
		modest: {Instances: []*clusterv1.InstanceStatus{instance("api", published(9, 1)...)}},
	} {
		status.NodeId = id
		r.keep("status/"+id, status)
		r.has(id, "api", "spare", "lamp")
	}
	snapshot := r.await("both", func(snapshot *cache.Snapshot) bool {
		return len(rolesOf(snapshot)) == 4 && snapshot.Plugins["curator"] != nil
	})
	if first, again := snapshot.Curators(), snapshot.Curators(); &first[0] != &again[0] {
		t.Error("the curators of a snapshot are computed more than once")
	}
	if got := snapshot.Curators(); !slices.Equal(got, []string{"192.0.2.1:1", "192.0.2.9:1", "192.0.2.2:1"}) {
		t.Errorf("%v", got)
	}
	// Every node comes before any node's second.
	crowd := &cache.Snapshot{State: snapshot.State, Directory: new(hostv1.Directory)}
	for n := range cache.MaxCurators {
		crowd.Directory.Nodes = append(crowd.Directory.Nodes, &hostv1.DirectoryNode{NodeId: fmt.Sprint(n), Healthy: n%2 == 0, Roles: []*hostv1.DirectoryRole{
			{Role: "api", Endpoints: published(n, 2)}, {Role: "spare", Endpoints: published(100+n, 1)},
		}})
	}
	all := crowd.Curators()
	for n := 0; n < cache.MaxCurators; n += 2 {
		if at := slices.Index(all, fmt.Sprintf("192.0.2.%d:1", n)); at < 0 || at >= cache.MaxCurators/2 {
			t.Errorf("node %d is at %d of %v", n, at, all)
		}
	}
	if len(all) != cache.MaxCurators || slices.ContainsFunc(all, func(address string) bool { return address[len(address)-2:] != ":1" }) {
		t.Errorf("%v", all)
	}
}
