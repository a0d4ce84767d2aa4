package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// digestOf is the digest of a build by its letter.
func digestOf(letter string) map[string]string {
	return map[string]string{"linux/amd64": "sha256:" + strings.Repeat(letter, 64)}
}

// lamp is a version of a plugin with one role of the same name, which wants a ConsensusUser of that name and some grants.
func lamp(version string, grants ...*rolev1.Grant) *rolev1.Manifest {
	manifest := plugin("lamp", &rolev1.RoleManifest{Name: "lamp", ConsensusUser: "lamp", Grants: grants})
	manifest.Version = version
	return manifest
}

func readPath(path string) *rolev1.Grant {
	return &rolev1.Grant{Name: "read-path", Parameters: map[string]string{"path": path}}
}

// offer adds a version of a plugin without approving it, and returns the record.
func (c *cluster) offer(manifest *rolev1.Manifest, digests map[string]string) *clusterv1.PluginRecord {
	c.t.Helper()
	response, err := c.asOwner().AddPlugin(c.t.Context(), &clusterv1.AddPluginRequest{Manifest: manifest, Digests: digests})
	if err != nil {
		c.t.Fatal(err)
	}
	return response.GetPlugin()
}

// approve approves what waits of a plugin with all that it wants.
func (c *cluster) approve(waits *clusterv1.PluginRecord) *clusterv1.PluginRecord {
	c.t.Helper()
	response, err := c.asOwner().ApprovePlugin(c.t.Context(), approval(waits))
	if err != nil {
		c.t.Fatal(err)
	}
	return response.GetPlugin()
}

func approval(waits *clusterv1.PluginRecord) *clusterv1.ApprovePluginRequest {
	return &clusterv1.ApprovePluginRequest{
		Name: waits.GetName(), Version: waits.GetWaiting().GetVersion(), Digests: waits.GetWaiting().GetDigests(), Grants: remit.Wanted(waits.GetWaiting().GetManifest()),
	}
}

// stored is the catalog as it is in the store, and the document that the store's own reconciler follows.
func (c *cluster) stored() (*store.State, *consensusv1.DesiredState) {
	c.t.Helper()
	client := c.client()
	state, err := store.New(store.Config{Client: client, ClusterUser: "curator", AnswerWithin: patience}).ReadRecords(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	got, err := client.Get(c.t.Context(), consensusv1.DesiredStateKey)
	if err != nil || len(got.Kvs) != 1 {
		c.t.Fatalf("Get: %v, %v", got, err)
	}
	desired := new(consensusv1.DesiredState)
	if err := proto.Unmarshal(got.Kvs[0].Value, desired); err != nil {
		c.t.Fatal(err)
	}
	return state, desired
}

func usersOf(desired *consensusv1.DesiredState) string {
	var users []string
	for _, user := range desired.GetUsers() {
		users = append(users, user.GetConsensusUser())
	}
	return strings.Join(users, " ") + " wiped " + strings.Join(desired.GetWipedUsers(), " ")
}

// spell is a record in a line: what runs, what waits, what was before, what is granted.
func spell(plugin *clusterv1.PluginRecord) string {
	var granted []string
	for _, grants := range plugin.GetGrants() {
		text := grants.GetRole() + "=" + grants.GetConsensusUser()
		for _, grant := range grants.GetGrants() {
			text += "," + grant.GetName()
		}
		granted = append(granted, text)
	}
	return fmt.Sprintf("%q waits %q before %q granted %v", plugin.GetVersion(), plugin.GetWaiting().GetVersion(), plugin.GetPrevious().GetVersion(), granted)
}

func wantRecord(t *testing.T, what string, got *clusterv1.PluginRecord, want string) {
	t.Helper()
	if spell(got) != want {
		t.Errorf("%s: %s, want %s", what, spell(got), want)
	}
}

// TestAPluginWaits is the life of a plugin: its first version waits, is approved, and so on.
func TestAPluginWaits(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	w := watch(t, c.asNode())

	waits := c.offer(lamp("1.0.0", readPath("/srv")), digestOf("a"))
	wantRecord(t, "the first", waits, `"" waits "1.0.0" before "" granted []`)
	if waits.GetGeneration() != 1 || waits.GetGenesis() || waits.GetManifest() != nil || waits.GetWaiting().GetAdded() == nil {
		t.Errorf("the first: %v", waits)
	}
	if again := c.offer(lamp("1.0.0", readPath("/srv")), digestOf("a")); !proto.Equal(again, waits) {
		t.Errorf("the same again: %v", again)
	}
	if _, desired := c.stored(); usersOf(desired) != "beam wiped " {
		t.Errorf("a plugin that waits has a user: %v", desired)
	}
	_, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"})
	wantCode(t, err, codes.FailedPrecondition, "version 1.0.0", "`reeve plugin approve lamp`")
	_, err = owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}, {Role: "lamp"}}})
	wantCode(t, err, codes.FailedPrecondition, "`reeve plugin approve lamp`")

	request := approval(waits)
	request.Grants[0].ConsensusUser = ""
	response, err := owner.ApprovePlugin(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	wantRecord(t, "approved without the user", response.GetPlugin(), `"1.0.0" waits "" before "" granted [lamp=,read-path]`)
	if _, desired := c.stored(); usersOf(desired) != "beam wiped " {
		t.Errorf("a user that was withheld: %v", desired)
	}
	again, err := owner.ApprovePlugin(ctx, request)
	if err != nil || !proto.Equal(again.GetPlugin(), response.GetPlugin()) {
		t.Errorf("approved again, since the answer was lost: %v, %v", again, err)
	}
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"}); err != nil {
		t.Fatal(err)
	}
	has := func(version, previous string) func(*clusterv1.WatchResponse) bool {
		return func(r *clusterv1.WatchResponse) bool {
			for _, plugin := range r.GetPlugins() {
				if plugin.GetName() == "lamp" {
					if plugin.GetWaiting() != nil {
						t.Errorf("the node is given what waits: %v", plugin)
					}
					return plugin.GetVersion() == version && plugin.GetPrevious().GetVersion() == previous
				}
			}
			return false
		}
	}
	w.await("the role", has("1.0.0", ""))

	// It asks for no more than was decided on, granted or not.
	next := c.offer(lamp("1.1.0", readPath("/srv")), digestOf("b"))
	wantRecord(t, "the next one", next, `"1.1.0" waits "" before "1.0.0" granted [lamp=,read-path]`)
	w.await("the next version", has("1.1.0", "1.0.0"))

	// It asks for more: the one before runs on.
	waits = c.offer(lamp("2.0.0", readPath("/srv"), readPath("/more")), digestOf("c"))
	wantRecord(t, "one that asks for more", waits, `"1.1.0" waits "2.0.0" before "1.0.0" granted [lamp=,read-path]`)
	ran := c.approve(waits)
	wantRecord(t, "approved", ran, `"2.0.0" waits "" before "1.1.0" granted [lamp=lamp,read-path,read-path]`)
	seen := w.await("the approved version", has("2.0.0", "1.1.0"))
	for _, plugin := range seen.GetPlugins() {
		if want := (&clusterv1.PluginRecord{
			Name: "lamp", Version: "2.0.0", Digests: ran.GetDigests(), Manifest: ran.GetManifest(), Grants: ran.GetGrants(), Generation: ran.GetGeneration(),
			Added: ran.GetAdded(), Previous: ran.GetPrevious(),
		}); plugin.GetName() == "lamp" && !proto.Equal(plugin, want) {
			t.Errorf("the node sees %s", cmp.Diff(want, plugin, protocmp.Transform()))
		}
	}
	if _, desired := c.stored(); usersOf(desired) != "beam lamp wiped " {
		t.Errorf("users: %v", desired)
	}

	// Another platform of what runs, and another build of it.
	arm := map[string]string{"linux/arm64": "sha256:" + strings.Repeat("d", 64)}
	if both := c.offer(ran.GetManifest(), arm); len(both.GetDigests()) != 2 || both.GetPrevious().GetVersion() != "1.1.0" || both.GetGeneration() != ran.GetGeneration()+1 {
		t.Errorf("another platform: %v", both)
	}
	if rebuilt := c.offer(ran.GetManifest(), digestOf("e")); len(rebuilt.GetDigests()) != 1 || len(rebuilt.GetPrevious().GetDigests()) != 2 || rebuilt.GetPrevious().GetVersion() != "2.0.0" {
		t.Errorf("another build: %v", rebuilt)
	}
}

func TestApprovePluginRefusals(t *testing.T) {
	c := newCluster(t)
	waits := c.offer(lamp("1.0.0", readPath("/srv"), &rolev1.Grant{Name: "privileged"}), digestOf("a"))
	tests := map[string]struct {
		change func(*clusterv1.ApprovePluginRequest)
		code   codes.Code
		says   []string
	}{
		"no name":         {func(r *clusterv1.ApprovePluginRequest) { r.Name = "" }, codes.InvalidArgument, []string{"name"}},
		"another plugin":  {func(r *clusterv1.ApprovePluginRequest) { r.Name = "candle" }, codes.NotFound, []string{`"candle"`, "consensus, curator, extras, lamp"}},
		"nothing waits":   {func(r *clusterv1.ApprovePluginRequest) { r.Name = "extras" }, codes.FailedPrecondition, []string{`"extras"`, "version 1.0.0 runs", "reeve plugin grant"}},
		"another version": {func(r *clusterv1.ApprovePluginRequest) { r.Version = "1.0.1" }, codes.Aborted, []string{`"1.0.1"`, "1.0.0", "reeve plugin diff lamp"}},
		"another digest":  {func(r *clusterv1.ApprovePluginRequest) { r.Digests = digestOf("b") }, codes.Aborted, []string{strings.Repeat("a", 64)}},
		"one digest more": {func(r *clusterv1.ApprovePluginRequest) {
			r.Digests = map[string]string{"linux/amd64": waits.GetWaiting().GetDigests()["linux/amd64"], "linux/arm64": "sha256:" + strings.Repeat("b", 64)}
		}, codes.Aborted, nil},
		"no digests":       {func(r *clusterv1.ApprovePluginRequest) { r.Digests = nil }, codes.Aborted, nil},
		"an unknown role":  {func(r *clusterv1.ApprovePluginRequest) { r.Grants[0].Role = "candle" }, codes.InvalidArgument, []string{"grants[0].role", "its roles are lamp"}},
		"a role twice":     {func(r *clusterv1.ApprovePluginRequest) { r.Grants = append(r.Grants, r.Grants[0]) }, codes.InvalidArgument, []string{"grants[1].role"}},
		"another user":     {func(r *clusterv1.ApprovePluginRequest) { r.Grants[0].ConsensusUser = "beam" }, codes.InvalidArgument, []string{"grants[0].consensus_user"}},
		"an unknown grant": {func(r *clusterv1.ApprovePluginRequest) { r.Grants[0].Grants[0].Name = "paint" }, codes.InvalidArgument, []string{"grants[0].grants[0].name", `no grant "paint"`}},
		"a wrong parameter": {func(r *clusterv1.ApprovePluginRequest) { r.Grants[0].Grants[0] = readPath("srv") }, codes.InvalidArgument,
			[]string{`grants[0].grants[0].parameters["path"]`, "absolute"}},
		"what it does not want": {func(r *clusterv1.ApprovePluginRequest) { r.Grants[0].Grants[0] = replaceFile("/x") }, codes.InvalidArgument,
			[]string{"grants[0].grants[0].name", `"replace-file"`}},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			request := proto.CloneOf(approval(waits))
			test.change(request)
			_, err := c.asOwner().ApprovePlugin(t.Context(), request)
			wantCode(t, err, test.code, test.says...)
		})
	}
	// A call that grants nothing does not grant "privileged" either: it is granted by its name.
	request := approval(waits)
	request.Grants = []*clusterv1.RoleGrants{{Role: "lamp", Grants: []*rolev1.Grant{readPath("/srv")}}}
	response, err := c.asOwner().ApprovePlugin(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	wantRecord(t, "without that word", response.GetPlugin(), `"1.0.0" waits "" before "" granted [lamp=,read-path]`)
}

// What waits may not stand in the way of others unseen, and must still be right when it is approved.
func TestWhatWaitsIsChecked(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	c.offer(lamp("1.0.0"), digestOf("a"))
	add := func(manifest *rolev1.Manifest) error {
		_, err := owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: manifest, Digests: digests, Approve: true})
		return err
	}
	wantCode(t, add(plugin("candle", &rolev1.RoleManifest{Name: "lamp"})), codes.AlreadyExists, `"lamp" belongs to plugin "lamp"`, "version 1.0.0, which waits")
	wantCode(t, add(plugin("candle", &rolev1.RoleManifest{Name: "candle", ConsensusUser: "lamp"})), codes.AlreadyExists, `the ConsensusUser "lamp"`, "which waits")
	_, err := owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: plugin("candle", &rolev1.RoleManifest{Name: "candle", ConsensusUser: "beam"}), Digests: digests})
	wantCode(t, err, codes.AlreadyExists, `"beam"`)
	_, err = owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: lamp("1.0.0"), Digests: digests, Grants: []*clusterv1.RoleGrants{{Role: "lamp"}}})
	wantCode(t, err, codes.InvalidArgument, "grants", "set approve")

	// A version of an assigned role that nobody could approve does not come to wait.
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lighthouse"}); err != nil {
		t.Fatal(err)
	}
	without := plugin("extras", &rolev1.RoleManifest{Name: "hostsfile", ConsensusUser: "more"})
	without.Version = "2.0.0"
	_, err = owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: without, Digests: digests})
	wantCode(t, err, codes.FailedPrecondition, `"lighthouse"`, c.id)
	if _, err := owner.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: "lighthouse"}); err != nil {
		t.Fatal(err)
	}
	waits := c.offer(without, digestOf("a"))
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lighthouse"}); err != nil {
		t.Fatal(err)
	}
	_, err = owner.ApprovePlugin(ctx, approval(waits))
	wantCode(t, err, codes.FailedPrecondition, `"lighthouse"`, c.id)

	// The names of a version that ran before stay taken while nodes may go back to it.
	if _, err := owner.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: "lighthouse"}); err != nil {
		t.Fatal(err)
	}
	c.approve(waits)
	wantCode(t, add(plugin("candle", &rolev1.RoleManifest{Name: "candle", ConsensusUser: "beam"})), codes.AlreadyExists, `"beam"`, "to which nodes may go back")
	_, err = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lighthouse"})
	wantCode(t, err, codes.NotFound)
}

// What nodes have gone back from is not what the next version goes back to.
func TestPreviousIsWhatWorked(t *testing.T) {
	c := newCluster(t)
	plain := func(version string) *rolev1.Manifest {
		manifest := plugin("plain", &rolev1.RoleManifest{Name: "plain"})
		manifest.Version = version
		return manifest
	}
	c.offer(plain("1.0.0"), digestOf("a"))
	c.offer(plain("1.1.0"), digestOf("b"))
	bad := digestOf("b")["linux/amd64"]
	ready := hostv1.InstanceState_INSTANCE_STATE_READY
	if _, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{
		Role: "plain", State: ready, Plugin: "plain", RolledBack: &clusterv1.RolledBack{Version: "1.1.0", Digest: bad},
	}}}}); err != nil {
		t.Fatal(err)
	}
	c.await(c.id, "the report", func(node *clusterv1.Node) bool { return len(node.GetStatus().GetInstances()) == 1 })
	if record := c.offer(plain("1.2.0"), digestOf("c")); record.GetPrevious().GetVersion() != "1.0.0" {
		t.Errorf("the next one goes back to %s", spell(record))
	}
}
