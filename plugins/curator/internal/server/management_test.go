package server_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// roles spells the roles of a record: name@generation and configuration.
func roles(record *clusterv1.NodeRecord) string {
	var roles []string
	for _, role := range record.GetRoles() {
		roles = append(roles, fmt.Sprintf("%s@%d%s", role.GetRole(), role.GetGeneration(), role.GetConfiguration()))
	}
	return strings.Join(roles, " ")
}

const atFirst = `api@1{"listen": "127.0.0.1:0"} store@1`

func TestAddAndRemoveRole(t *testing.T) {
	c := newCluster(t)
	owner := c.asOwner()
	add := func(role, configuration, wantRoles string, wantGeneration uint64) {
		t.Helper()
		response, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: role, Configuration: configuration})
		if err != nil {
			t.Fatal(err)
		}
		if got := roles(response.GetNode()); got != wantRoles || response.GetNode().GetGeneration() != wantGeneration {
			t.Errorf("got %s, generation %d; want %s, %d", got, response.GetNode().GetGeneration(), wantRoles, wantGeneration)
		}
	}
	add("hostsfile", "", `api@1{"listen": "127.0.0.1:0"} hostsfile@2 store@1`, 2)
	add("hostsfile", "", `api@1{"listen": "127.0.0.1:0"} hostsfile@2 store@1`, 2) // nothing changes
	add("hostsfile", `{"path": "/x"}`, `api@1{"listen": "127.0.0.1:0"} hostsfile@3{"path": "/x"} store@1`, 3)
	response, err := owner.RemoveRole(t.Context(), &clusterv1.RemoveRoleRequest{NodeId: c.id[:12], Role: "hostsfile"})
	if err != nil {
		t.Fatal(err)
	}
	if got := roles(response.GetNode()); got != atFirst || response.GetNode().GetGeneration() != 4 {
		t.Errorf("got %s, generation %d", got, response.GetNode().GetGeneration())
	}
	// What is given back is not what was taken: its generation is another.
	add("hostsfile", `{"path": "/x"}`, `api@1{"listen": "127.0.0.1:0"} hostsfile@5{"path": "/x"} store@1`, 5)
	add("lighthouse", "", `api@1{"listen": "127.0.0.1:0"} hostsfile@5{"path": "/x"} lighthouse@6 store@1`, 6)
}

func TestRoleRefusals(t *testing.T) {
	c := newCluster(t)
	owner := c.asOwner()
	if _, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lighthouse"}); err != nil {
		t.Fatal(err)
	}
	add := func(node, role, configuration string) error {
		_, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: node, Role: role, Configuration: configuration})
		return err
	}
	remove := func(node, role string) error {
		_, err := owner.RemoveRole(t.Context(), &clusterv1.RemoveRoleRequest{NodeId: node, Role: role})
		return err
	}
	wantCode(t, add(c.id, "ghost", ""), codes.NotFound, `"ghost"`, "api, hostsfile, lighthouse, store", "reeve plugin add")
	wantCode(t, add("reeve-ffffffff", "hostsfile", ""), codes.NotFound, `"reeve-ffffffff"`, c.id)
	wantCode(t, add(c.id[:7], "hostsfile", ""), codes.InvalidArgument, "at least 8")
	wantCode(t, add(c.id, "Ghost!", ""), codes.InvalidArgument, "role")
	wantCode(t, add(c.id, "hostsfile", "[]"), codes.InvalidArgument, "JSON object")
	wantCode(t, add(c.id, "hostsfile", "{"), codes.InvalidArgument, "JSON object")
	wantCode(t, add(c.id, "hostsfile", `{"a": "`+strings.Repeat("x", 256<<10)+`"}`), codes.InvalidArgument, "262144")
	wantCode(t, remove(c.id, "hostsfile"), codes.NotFound, `"hostsfile"`, "api, lighthouse, store")
	wantCode(t, remove(c.id, "store"), codes.FailedPrecondition, `role "api"`, `role "lighthouse"`, "reeve.consensus.v1", "last of the cluster")
	wantCode(t, remove(c.id, "api"), codes.FailedPrecondition, "reeve.cluster.v1", "last of the cluster")

	second := c.secondNode()
	wantCode(t, add(identity.NodeID(public(second)), "lighthouse", ""), codes.FailedPrecondition, `requires "store"`)

	err := add(c.id, "api", `{"listen": 1, "more": 2}`)
	wantCode(t, err, codes.InvalidArgument, "configuration/listen", "more")
	var fields []string
	for _, detail := range status.Convert(err).Details() {
		for _, violation := range detail.(*errdetails.BadRequest).GetFieldViolations() {
			fields = append(fields, violation.GetField())
		}
	}
	if len(fields) != 2 {
		t.Errorf("the details name %q", fields)
	}
	got, err := owner.GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetNode().GetRecord().GetGeneration() != 2 {
		t.Errorf("a refused call changed the record: %v", got.GetNode().GetRecord())
	}
}

// With another node that has the capability, the guard lets go of the first.
func TestGuardsGoByCapability(t *testing.T) {
	c := newCluster(t)
	second := identity.NodeID(public(c.secondNode("store", "api")))
	c.runs(c.id, second)
	c.tell(c.id, second)
	owner := c.asOwner()
	if _, err := owner.SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: second}); err != nil {
		t.Fatal(err)
	}
	wantEmpty := &clusterv1.SetRolesRequest{NodeId: c.id}
	_, err := owner.SetRoles(t.Context(), wantEmpty)
	wantCode(t, err, codes.FailedPrecondition, "reeve.cluster.v1", "reeve.consensus.v1")
	if _, err := owner.SetRoles(t.Context(), &clusterv1.SetRolesRequest{
		NodeId: second, Roles: []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}},
	}); err != nil {
		t.Fatal(err)
	}
	c.setState(second, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING)
	_, err = owner.SetRoles(t.Context(), wantEmpty)
	wantCode(t, err, codes.FailedPrecondition, "reeve.cluster.v1")
	c.setState(second, clusterv1.NodeState_NODE_STATE_UP)
	if _, err := owner.SetRoles(t.Context(), wantEmpty); err != nil {
		t.Error(err)
	}
}

func TestSetRoles(t *testing.T) {
	c := newCluster(t)
	owner := c.asOwner()
	set := func(expected uint64, roles ...*clusterv1.RoleAssignment) (*clusterv1.NodeRecord, error) {
		response, err := owner.SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: c.id, Roles: roles, ExpectedGeneration: expected})
		return response.GetNode(), err
	}
	api := &clusterv1.RoleAssignment{Role: "api", Configuration: `{"listen": "127.0.0.1:0"}`, Generation: 77} // generations are ignored
	store := &clusterv1.RoleAssignment{Role: "store"}
	hostsfile := &clusterv1.RoleAssignment{Role: "hostsfile"}
	record, err := set(0, store, api)
	if err != nil || roles(record) != atFirst || record.GetGeneration() != 1 {
		t.Errorf("nothing changes: %v, %v", record, err)
	}
	record, err = set(1, hostsfile, store, api)
	if err != nil || roles(record) != `api@1{"listen": "127.0.0.1:0"} hostsfile@2 store@1` {
		t.Errorf("with the expected generation: %v, %v", record, err)
	}
	_, err = set(1, store, api)
	wantCode(t, err, codes.Aborted, "generation 2")
	_, err = set(0, store, store)
	wantCode(t, err, codes.InvalidArgument, `"store" is listed twice`)
	_, err = set(0, store, api, &clusterv1.RoleAssignment{Role: "ghost"})
	wantCode(t, err, codes.NotFound, `"ghost"`)
}

// Two curators decide at the same time, each something that is right by itself, and only one may have it.
func TestWriteSkew(t *testing.T) {
	c := newCluster(t)
	second := identity.NodeID(public(c.secondNode("store", "api")))
	c.runs(c.id, second)
	other := start(t, etcd, c.prefix, nil).ready()
	clients := []clusterv1.ManagementServiceClient{
		c.asOwner(), clusterv1.NewManagementServiceClient(c.dial(other, selfSigned(t, c.owner))),
	}
	for round := range 5 {
		var group sync.WaitGroup
		errs := make([]error, 2)
		for i, node := range []string{c.id, second} {
			group.Go(func() {
				if round%2 == 0 {
					_, errs[i] = clients[i].RemoveRole(t.Context(), &clusterv1.RemoveRoleRequest{NodeId: node, Role: "api"})
				} else {
					_, errs[i] = clients[i].SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: node, Roles: []*clusterv1.RoleAssignment{{Role: "store"}}})
				}
			})
		}
		group.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v; %v", round, errs[0], errs[1])
		}
		for i, err := range errs {
			if err != nil {
				wantCode(t, err, codes.FailedPrecondition, "reeve.cluster.v1")
				continue
			}
			node := []string{c.id, second}[i]
			if _, err := clients[i].AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: node, Role: "api"}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNodesByTheBeginning(t *testing.T) {
	c := newCluster(t)
	// Two nodes whose IDs begin alike, by luck of the keys: among 300 there are some with the same two digits.
	nodes := map[string][]string{}
	var beginning string
	for beginning == "" {
		id := identity.NodeID(public(c.secondNode()))
		nodes[id[:8]] = append(nodes[id[:8]], id)
		if len(nodes[id[:8]]) == 2 {
			beginning = id[:8]
		}
	}
	owner := c.asOwner()
	_, err := owner.GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: beginning})
	wantCode(t, err, codes.InvalidArgument, nodes[beginning][0], nodes[beginning][1])
	got, err := owner.GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: nodes[beginning][0][:30]})
	if err != nil || got.GetNode().GetRecord().GetId() != nodes[beginning][0] {
		t.Errorf("got %v, %v", got, err)
	}
	list, err := owner.ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for _, node := range list.GetNodes() {
		if node.GetRecord().GetId() <= last {
			t.Errorf("%s comes after %s", node.GetRecord().GetId(), last)
		}
		last = node.GetRecord().GetId()
	}
}

func TestAddPlugin(t *testing.T) {
	c := newCluster(t)
	owner := c.asOwner()
	wanted := replaceFile("/srv/motd") // the owner's choice
	request := &clusterv1.AddPluginRequest{
		Manifest: plugin("third", &rolev1.RoleManifest{Name: "third", ConsensusUser: "third", Grants: []*rolev1.Grant{replaceFile("/etc/motd")}}),
		Digests:  digests,
		Approve:  true,
		Grants:   []*clusterv1.RoleGrants{{Role: "third", Grants: []*rolev1.Grant{wanted}}},
	}
	add := func() *clusterv1.PluginRecord {
		t.Helper()
		response, err := owner.AddPlugin(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return response.GetPlugin()
	}
	added := add()
	want := &clusterv1.PluginRecord{
		Name: "third", Version: "1.0.0", Digests: digests, Manifest: request.GetManifest(), Generation: 1, Added: added.GetAdded(),
		Grants:  []*clusterv1.RoleGrants{{Role: "third", ConsensusUser: "third", Grants: []*rolev1.Grant{wanted}}},
		Decided: []*clusterv1.RoleGrants{{Role: "third", ConsensusUser: "third", Grants: []*rolev1.Grant{replaceFile("/etc/motd")}}},
	}
	if diff := cmp.Diff(want, added, protocmp.Transform()); diff != "" {
		t.Errorf("record: %s", diff)
	}
	if again := add(); again.GetGeneration() != 1 {
		t.Errorf("the same again has generation %d", again.GetGeneration())
	}
	request.Manifest.Version = "1.1.0"
	if next := add(); next.GetGeneration() != 2 || next.GetVersion() != "1.1.0" {
		t.Errorf("the next version is %v", next)
	}
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	state, err := records.ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if users := store.Desired(state, "curator").GetUsers(); len(users) != 2 || users[1].GetConsensusUser() != "third" {
		t.Errorf("users: %v", users)
	}
	if _, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "third"}); err != nil {
		t.Error(err)
	}
}

func TestAddPluginRefusals(t *testing.T) {
	c := newCluster(t)
	owner := c.asOwner()
	if _, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lighthouse"}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		manifest *rolev1.Manifest
		grants   []*clusterv1.RoleGrants
		code     codes.Code
		says     []string
	}{
		"a role of another": {
			plugin("third", &rolev1.RoleManifest{Name: "store"}), nil, codes.AlreadyExists, []string{`"store"`, `"consensus"`},
		},
		"a ConsensusUser of another": {
			plugin("third", &rolev1.RoleManifest{Name: "third", ConsensusUser: "beam"}), nil, codes.AlreadyExists, []string{`"beam"`, `"lighthouse"`, `"extras"`},
		},
		"the curator's own ConsensusUser": {
			plugin("third", &rolev1.RoleManifest{Name: "third", ConsensusUser: "curator"}), nil, codes.AlreadyExists, []string{`"curator"`},
		},
		"the store's root": {
			plugin("third", &rolev1.RoleManifest{Name: "third", ConsensusUser: "root"}), nil, codes.InvalidArgument, []string{"consensus_user"},
		},
		"a grant that is not wanted": {
			plugin("third", &rolev1.RoleManifest{Name: "third"}),
			[]*clusterv1.RoleGrants{{Role: "third", Grants: []*rolev1.Grant{replaceFile("/etc/motd")}}}, codes.InvalidArgument, []string{`"replace-file"`},
		},
		"a grant for no role of it": {
			plugin("third", &rolev1.RoleManifest{Name: "third"}), []*clusterv1.RoleGrants{{Role: "fourth"}}, codes.InvalidArgument, []string{`"fourth"`, "third"},
		},
		"the cluster API, by another plugin": {
			plugin("third", &rolev1.RoleManifest{Name: "athird", Provides: []string{"reeve.cluster.v1"}}), nil,
			codes.FailedPrecondition, []string{`"athird"`, `role "api" of plugin "curator"`, "reeve.cluster.v1"},
		},
		"the store, by another plugin": {
			plugin("third", &rolev1.RoleManifest{Name: "third"}, &rolev1.RoleManifest{Name: "athird", Provides: []string{"x.y", "reeve.consensus.v1"}}), nil,
			codes.FailedPrecondition, []string{`"athird"`, `role "store" of plugin "consensus"`, "reeve.consensus.v1"},
		},
		"the store, by another built-in plugin": {
			plugin("extras", &rolev1.RoleManifest{Name: "lighthouse", ConsensusUser: "beam", Provides: []string{"reeve.consensus.v1"}}), nil,
			codes.FailedPrecondition, []string{`"lighthouse"`, `"store"`},
		},
		"no manifest": {nil, nil, codes.InvalidArgument, []string{"manifest"}},
		"no roles":    {plugin("third"), nil, codes.InvalidArgument, []string{"manifest.roles"}},
		"a schema that refers to a file": {
			plugin("third", &rolev1.RoleManifest{Name: "third", ConfigurationSchema: `{"$ref": "file:///etc/passwd"}`}), nil,
			codes.InvalidArgument, []string{"configuration_schema", "stand by itself"},
		},
		"a version without an assigned role": {
			plugin("extras", &rolev1.RoleManifest{Name: "hostsfile"}), nil, codes.FailedPrecondition, []string{`"lighthouse"`, c.id},
		},
		"a version that requires what is not there": {
			plugin("extras", &rolev1.RoleManifest{Name: "lighthouse", ConsensusUser: "beam", Requires: []string{"example.absent.v1"}}), nil,
			codes.FailedPrecondition, []string{"example.absent.v1"},
		},
		"a version that no longer serves the cluster": {
			plugin("curator", &rolev1.RoleManifest{Name: "api", ConsensusUser: "curator"}), nil, codes.FailedPrecondition, []string{"reeve.cluster.v1"},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			_, err := owner.AddPlugin(t.Context(), &clusterv1.AddPluginRequest{Manifest: test.manifest, Digests: digests, Grants: test.grants, Approve: true})
			wantCode(t, err, test.code, test.says...)
		})
	}
}

// What has a guarded capability keeps it in its next version.
func TestGuardedCapabilitiesOfTheNextVersion(t *testing.T) {
	c := newCluster(t)
	next := plugin("consensus", &rolev1.RoleManifest{Name: "store", Provides: []string{"reeve.consensus.v1", "example.snapshots.v1"}})
	next.Version = "1.0.1"
	response, err := c.asOwner().AddPlugin(t.Context(), &clusterv1.AddPluginRequest{Manifest: next, Digests: digests})
	if err != nil || response.GetPlugin().GetVersion() != "1.0.1" {
		t.Errorf("%v, %v", response, err)
	}
}

func TestOneProviderOnANode(t *testing.T) {
	c := newCluster(t)
	owner := c.asOwner()
	add := func(name string, provides ...string) error {
		_, err := owner.AddPlugin(t.Context(), &clusterv1.AddPluginRequest{
			Manifest: plugin(name, &rolev1.RoleManifest{Name: name, Provides: provides}), Digests: digests,
		})
		return err
	}
	assign := func(names ...string) error {
		roles := []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}}
		for _, name := range names {
			roles = append(roles, &clusterv1.RoleAssignment{Role: name})
		}
		_, err := owner.SetRoles(t.Context(), &clusterv1.SetRolesRequest{NodeId: c.id, Roles: roles})
		return err
	}
	for name, provides := range map[string][]string{"lamp": {"example.light.v1", "example.light.v1"}, "candle": {"example.light.v1"}, "broom": nil} {
		if err := add(name, provides...); err != nil {
			t.Fatal(err)
		}
	}
	if err := assign("lamp", "broom"); err != nil {
		t.Fatal(err)
	}
	_, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "candle"})
	wantCode(t, err, codes.FailedPrecondition, `"candle" and "lamp"`, c.id, "example.light.v1")
	wantCode(t, assign("candle", "lamp"), codes.FailedPrecondition, `"candle" and "lamp"`)
	// Nor by a new version of what is there.
	wantCode(t, add("broom", "example.light.v1"), codes.FailedPrecondition, `"broom" and "lamp"`)
	// One takes the place of the other.
	if err := assign("candle", "broom"); err != nil {
		t.Error(err)
	}
}

func TestWatchNode(t *testing.T) {
	c := newCluster(t)
	owner := c.asOwner()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := owner.WatchNode(ctx, &clusterv1.WatchNodeRequest{NodeId: c.id[:10]})
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, accept func(*clusterv1.Node) bool) {
		t.Helper()
		for {
			response, err := stream.Recv()
			if err != nil {
				t.Fatalf("waiting for %s: %v", what, err)
			}
			if accept(response.GetNode()) {
				return
			}
		}
	}
	await("the present state", func(node *clusterv1.Node) bool { return roles(node.GetRecord()) == atFirst && !node.GetHealthy() })
	if _, err := owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	await("the role", func(node *clusterv1.Node) bool { return len(node.GetRecord().GetRoles()) == 3 })
	if _, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	await("health", (*clusterv1.Node).GetHealthy)
	if _, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{Volume: "plain"}}); err != nil {
		t.Fatal(err)
	}
	await("the status", func(node *clusterv1.Node) bool { return node.GetStatus().GetVolume() == "plain" })

	missing, err := owner.WatchNode(t.Context(), &clusterv1.WatchNodeRequest{NodeId: "reeve-ffffffffffff"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = missing.Recv()
	wantCode(t, err, codes.NotFound, c.id)
}
