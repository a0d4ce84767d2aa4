package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
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
	if c.reader == nil {
		c.reader = c.client()
	}
	client := c.reader
	state, err := store.New(store.Config{Client: client, ClusterUser: "curator"}).ReadRecords(c.t.Context())
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
	for name, test := range map[string]struct {
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
	} {
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

func TestSetGrants(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	set := func(plugin string, expected uint64, grants *clusterv1.RoleGrants) (*clusterv1.PluginRecord, error) {
		response, err := owner.SetGrants(ctx, &clusterv1.SetGrantsRequest{Plugin: plugin, Grants: grants, ExpectedGeneration: expected})
		return response.GetPlugin(), err
	}
	waits := c.offer(lamp("1.0.0", readPath("/srv"), &rolev1.Grant{Name: "limit", Parameters: map[string]string{"store-bytes": "1Mi"}}), digestOf("a"))
	_, err := set("lamp", 0, &clusterv1.RoleGrants{Role: "lamp"})
	wantCode(t, err, codes.FailedPrecondition, "`reeve plugin approve lamp`")
	generation := c.approve(waits).GetGeneration()

	withdrawn, err := set("lamp", generation, &clusterv1.RoleGrants{Role: "lamp", Grants: []*rolev1.Grant{readPath("/own")}})
	if err != nil {
		t.Fatal(err)
	}
	wantRecord(t, "withdrawn", withdrawn, `"1.0.0" waits "" before "" granted [lamp=,read-path]`)
	_, err = set("lamp", generation, &clusterv1.RoleGrants{Role: "lamp"})
	wantCode(t, err, codes.Aborted, fmt.Sprintf("generation %d, not %d", generation+1, generation))
	if same, err := set("lamp", 0, &clusterv1.RoleGrants{Role: "lamp", Grants: []*rolev1.Grant{readPath("/own")}}); err != nil || !proto.Equal(same, withdrawn) {
		t.Errorf("the same again: %v, %v", same, err)
	}
	all, err := set("lamp", 0, &clusterv1.RoleGrants{Role: "lamp", ConsensusUser: "lamp", Grants: []*rolev1.Grant{
		readPath("/srv"), {Name: "limit", Parameters: map[string]string{"store-bytes": "2Mi", "store-leases": "5"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	wantRecord(t, "granted again", all, `"1.0.0" waits "" before "" granted [lamp=lamp,read-path,limit]`)
	if _, desired := c.stored(); usersOf(desired) != "beam lamp wiped " || desired.GetUsers()[1].GetBytesQuota() != 2<<20 || desired.GetUsers()[1].GetLeasesQuota() != 5 {
		t.Errorf("users: %v", desired)
	}
	c.offer(lamp("2.0.0", replaceFile("/x")), digestOf("b"))
	for name, test := range map[string]struct {
		plugin string
		grants *clusterv1.RoleGrants
		code   codes.Code
		says   []string
	}{
		"no plugin":        {"", &clusterv1.RoleGrants{Role: "lamp"}, codes.InvalidArgument, []string{"plugin"}},
		"no role":          {"lamp", nil, codes.InvalidArgument, []string{"grants.role"}},
		"another plugin":   {"candle", &clusterv1.RoleGrants{Role: "lamp"}, codes.NotFound, []string{`"candle"`}},
		"another role":     {"lamp", &clusterv1.RoleGrants{Role: "store"}, codes.InvalidArgument, []string{"grants.role", "its roles are lamp"}},
		"another user":     {"lamp", &clusterv1.RoleGrants{Role: "lamp", ConsensusUser: "curator"}, codes.InvalidArgument, []string{"grants.consensus_user"}},
		"an unknown grant": {"lamp", &clusterv1.RoleGrants{Role: "lamp", Grants: []*rolev1.Grant{{Name: "paint"}}}, codes.InvalidArgument, []string{"grants.grants[0].name"}},
		"not wanted":       {"lamp", &clusterv1.RoleGrants{Role: "lamp", Grants: []*rolev1.Grant{{Name: "privileged"}}}, codes.InvalidArgument, []string{`"privileged"`}},
		"a wrong bound": {"lamp", &clusterv1.RoleGrants{Role: "lamp", Grants: []*rolev1.Grant{{Name: "limit", Parameters: map[string]string{"memory": "much"}}}},
			codes.InvalidArgument, []string{`grants.grants[0].parameters["memory"]`}},
		"wanted by what waits": {"lamp", &clusterv1.RoleGrants{Role: "lamp", Grants: []*rolev1.Grant{replaceFile("/y")}}, codes.FailedPrecondition,
			[]string{"only version 2.0.0", "`reeve plugin approve lamp`"}},
		"the curator's user": {"curator", &clusterv1.RoleGrants{Role: "api"}, codes.FailedPrecondition, []string{"reeve.cluster.v1", "its ConsensusUser"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := set(test.plugin, 0, test.grants)
			wantCode(t, err, test.code, test.says...)
		})
	}
}

// Who withdraws a ConsensusUser takes it out of the store in the same transaction.
func TestWithdrawnUserIsGoneAtOnce(t *testing.T) {
	c := newCluster(t)
	before, _ := c.stored()
	withdrawn, err := c.asOwner().SetGrants(t.Context(), &clusterv1.SetGrantsRequest{Plugin: "extras", Grants: &clusterv1.RoleGrants{Role: "lighthouse"}})
	if err != nil {
		t.Fatal(err)
	}
	client := c.client()
	record, err := client.Get(t.Context(), "plugins/extras")
	if err != nil {
		t.Fatal(err)
	}
	document, err := client.Get(t.Context(), consensusv1.DesiredStateKey)
	if err != nil {
		t.Fatal(err)
	}
	if record.Kvs[0].ModRevision != document.Kvs[0].ModRevision || record.Kvs[0].ModRevision <= before.Revision {
		t.Errorf("the record was written at %d, the document at %d", record.Kvs[0].ModRevision, document.Kvs[0].ModRevision)
	}
	state, desired := c.stored()
	if usersOf(desired) != " wiped " || !proto.Equal(state.Plugins["extras"], withdrawn.GetPlugin()) {
		t.Errorf("%v, %v", desired, state.Plugins["extras"])
	}
}

func TestRemovePlugin(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	second := identity.NodeID(public(c.secondNode("store")))
	remove := func(name string, removeRoles, wipe bool) (*clusterv1.RemovePluginResponse, error) {
		return owner.RemovePlugin(ctx, &clusterv1.RemovePluginRequest{Name: name, RemoveRoles: removeRoles, Wipe: wipe})
	}
	_, err := remove("candle", false, false)
	wantCode(t, err, codes.NotFound, `"candle"`, "consensus, curator, extras")
	_, err = remove("", false, false)
	wantCode(t, err, codes.InvalidArgument, "name")
	for _, name := range []string{"consensus", "curator"} {
		_, err = remove(name, true, true)
		wantCode(t, err, codes.FailedPrecondition, "without which the cluster cannot be managed")
	}

	c.approve(c.offer(lamp("1.0.0"), digestOf("a")))
	for _, node := range []string{c.id, second} {
		if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: node, Role: "lamp"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = remove("lamp", false, true)
	wantCode(t, err, codes.FailedPrecondition, "node "+c.id+" (lamp)", "node "+second+" (lamp)", "--remove-roles")

	// What needs it stands in the way.
	c.approve(c.offer(plugin("needy", &rolev1.RoleManifest{Name: "needy", ConsensusUser: "needy", Requires: []string{"lamp"}}), digestOf("a")))
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "needy"}); err != nil {
		t.Fatal(err)
	}
	_, err = remove("lamp", true, true)
	wantCode(t, err, codes.FailedPrecondition, `role "needy" of node `+c.id, `requires "lamp"`)
	removed, err := remove("needy", true, false)
	if err != nil || len(removed.GetNodes()) != 1 || removed.GetNodes()[0] != c.id || removed.GetPlugin().GetName() != "needy" {
		t.Errorf("%v, %v", removed, err)
	}
	state, desired := c.stored()
	if usersOf(desired) != "beam lamp wiped " || len(state.Nodes[c.id].GetWipedRoles()) != 0 {
		t.Errorf("without wipe: %v, %v", desired, state.Nodes[c.id])
	}

	before := state.Nodes[c.id]
	removed, err = remove("lamp", true, true)
	if err != nil || len(removed.GetNodes()) != 2 {
		t.Fatalf("%v, %v", removed, err)
	}
	if state, desired = c.stored(); usersOf(desired) != "beam wiped lamp" || state.Plugins["lamp"] != nil {
		t.Errorf("with wipe: %v, %v", desired, state.Plugins)
	}
	for _, node := range []string{c.id, second} {
		if record := state.Nodes[node]; strings.Contains(roles(record), "lamp") || fmt.Sprint(record.GetWipedRoles()) != "[lamp]" {
			t.Errorf("node %s: %v", node, record)
		}
	}
	if state.Nodes[c.id].GetGeneration() != before.GetGeneration()+1 {
		t.Errorf("the node's record has generation %d after %d", state.Nodes[c.id].GetGeneration(), before.GetGeneration())
	}
	_, err = remove("lamp", true, true)
	wantCode(t, err, codes.NotFound)

	// Granted again, assigned again: nothing of it is wiped.
	waits := c.offer(lamp("1.0.0"), digestOf("a"))
	if _, desired = c.stored(); usersOf(desired) != "beam wiped lamp" {
		t.Errorf("while it waits: %v", desired)
	}
	c.approve(waits)
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"}); err != nil {
		t.Fatal(err)
	}
	if state, desired = c.stored(); usersOf(desired) != "beam lamp wiped " || len(state.Nodes[c.id].GetWipedRoles()) != 0 || len(state.Nodes[second].GetWipedRoles()) != 1 {
		t.Errorf("again: %v, %v", desired, state.Nodes)
	}

	// A plugin of the genesis goes like another one, and so does one that only waits.
	if _, err := remove("extras", false, false); err != nil {
		t.Error(err)
	}
	c.offer(plugin("candle", &rolev1.RoleManifest{Name: "candle", ConsensusUser: "wax"}), digests)
	if _, err := remove("candle", false, true); err != nil {
		t.Error(err)
	}
}

func TestWipedRoles(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	add := func() {
		t.Helper()
		if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(role string, wipe bool) (*clusterv1.NodeRecord, error) {
		response, err := owner.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: role, Wipe: wipe})
		return response.GetNode(), err
	}
	w := watch(t, c.asNode())
	add()
	if node, err := remove("hostsfile", false); err != nil || len(node.GetWipedRoles()) != 0 {
		t.Errorf("without wipe: %v, %v", node, err)
	}
	_, err := remove("hostsfile", false)
	wantCode(t, err, codes.NotFound)
	node, err := remove("hostsfile", true)
	if err != nil || fmt.Sprint(node.GetWipedRoles()) != "[hostsfile]" {
		t.Errorf("what is left of it: %v, %v", node, err)
	}
	w.await("the list", func(r *clusterv1.WatchResponse) bool { return len(r.GetNode().GetWipedRoles()) == 1 })
	if again, err := remove("hostsfile", true); err != nil || !proto.Equal(again, node) {
		t.Errorf("again: %v, %v", again, err)
	}
	_, err = remove("hostfile", true)
	wantCode(t, err, codes.NotFound, `"hostfile"`)
	add()
	w.await("the role without the list", func(r *clusterv1.WatchResponse) bool { return len(r.GetNode().GetWipedRoles()) == 0 })
	if node, err := remove("hostsfile", true); err != nil || fmt.Sprint(node.GetWipedRoles()) != "[hostsfile]" || roles(node) != atFirst {
		t.Errorf("with wipe: %v, %v", node, err)
	}
	set, err := owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}, {Role: "hostsfile"}}})
	if err != nil || len(set.GetNode().GetWipedRoles()) != 0 {
		t.Errorf("set: %v, %v", set, err)
	}
	_, err = remove("api", true)
	wantCode(t, err, codes.FailedPrecondition, "last of the cluster")
}

func TestPolicy(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	const (
		bestEffort = clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT
		required   = clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED
	)
	set := func(isolation clusterv1.IsolationPolicy, generation uint64) (*clusterv1.ClusterPolicy, error) {
		response, err := owner.SetPolicy(ctx, &clusterv1.SetPolicyRequest{Policy: &clusterv1.ClusterPolicy{Isolation: isolation, Generation: generation}})
		return response.GetPolicy(), err
	}
	w := watch(t, c.asNode())
	w.await("the policy at first", func(r *clusterv1.WatchResponse) bool { return r.GetPolicy().GetIsolation() == bestEffort })
	got, err := c.addOperator("vera", roleViewer).client().GetPolicy(ctx, &clusterv1.GetPolicyRequest{})
	if err != nil || got.GetPolicy().GetIsolation() != bestEffort || got.GetPolicy().GetGeneration() != 1 {
		t.Errorf("at first: %v, %v", got, err)
	}
	if policy, err := set(bestEffort, 1); err != nil || policy.GetGeneration() != 1 {
		t.Errorf("what it is: %v, %v", policy, err)
	}
	if policy, err := set(required, 1); err != nil || policy.GetIsolation() != required || policy.GetGeneration() != 2 {
		t.Errorf("set: %v, %v", policy, err)
	}
	w.await("the policy", func(r *clusterv1.WatchResponse) bool { return r.GetPolicy().GetIsolation() == required })
	_, err = set(bestEffort, 1)
	wantCode(t, err, codes.Aborted, "generation 2, not 1")
	if got, err := owner.GetPolicy(ctx, &clusterv1.GetPolicyRequest{}); err != nil || got.GetPolicy().GetIsolation() != required {
		t.Errorf("got %v, %v", got, err)
	}
	if policy, err := set(bestEffort, 0); err != nil || policy.GetGeneration() != 3 {
		t.Errorf("whatever it is: %v, %v", policy, err)
	}
	for _, isolation := range []clusterv1.IsolationPolicy{0, 77} {
		_, err = set(isolation, 0)
		wantCode(t, err, codes.InvalidArgument, "policy.isolation")
	}
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
	w := watch(t, c.asNode())
	w.await("the report", func(r *clusterv1.WatchResponse) bool { return len(r.GetDirectory().GetNodes()[0].GetRoles()) == 1 })
	if record := c.offer(plain("1.2.0"), digestOf("c")); record.GetPrevious().GetVersion() != "1.0.0" {
		t.Errorf("the next one goes back to %s", spell(record))
	}
}

// Two curators are asked for things that are right by themselves, and only one may have it.
func TestCatalogRaces(t *testing.T) {
	c := newCluster(t)
	other := start(t, etcd, c.prefix, nil).ready()
	clients := []clusterv1.ManagementServiceClient{c.asOwner(), clusterv1.NewManagementServiceClient(c.dial(other, selfSigned(t, c.owner)))}
	both := func(calls ...func(clusterv1.ManagementServiceClient) error) []error {
		var group sync.WaitGroup
		errs := make([]error, len(calls))
		for i, call := range calls {
			group.Go(func() { errs[i] = call(clients[i%2]) })
		}
		group.Wait()
		return errs
	}
	add := func(name, user string) func(clusterv1.ManagementServiceClient) error {
		return func(client clusterv1.ManagementServiceClient) error {
			_, err := client.AddPlugin(t.Context(), &clusterv1.AddPluginRequest{Manifest: plugin(name, &rolev1.RoleManifest{Name: name, ConsensusUser: user}), Digests: digests, Approve: true})
			return err
		}
	}
	remove := func(name string) func(clusterv1.ManagementServiceClient) error {
		return func(client clusterv1.ManagementServiceClient) error {
			_, err := client.RemovePlugin(t.Context(), &clusterv1.RemovePluginRequest{Name: name})
			return err
		}
	}
	one := func(what string, errs []error, code codes.Code) {
		t.Helper()
		for i, err := range errs {
			if err == nil && errs[1-i] != nil {
				if status.Code(errs[1-i]) != code {
					t.Errorf("%s: %v", what, errs[1-i])
				}
				return
			}
		}
		t.Errorf("%s: %v", what, errs)
	}
	for range 5 {
		one("two plugins with one user", both(add("first", "shared"), add("second", "shared")), codes.AlreadyExists)
		one("the same plugin removed twice", func() []error {
			name := "first"
			if state, _ := c.stored(); state.Plugins["second"] != nil {
				name = "second"
			}
			return both(remove(name), remove(name))
		}(), codes.NotFound)

		// Approved while another version comes to wait: whoever is second is told, or approves what it looked at.
		waits := c.offer(lamp("1.0.0"), digestOf("a"))
		errs := both(
			func(client clusterv1.ManagementServiceClient) error {
				_, err := client.ApprovePlugin(t.Context(), approval(waits))
				return err
			},
			func(client clusterv1.ManagementServiceClient) error {
				_, err := client.AddPlugin(t.Context(), &clusterv1.AddPluginRequest{Manifest: lamp("2.0.0", readPath("/srv")), Digests: digestOf("b")})
				return err
			})
		state, _ := c.stored()
		switch record := state.Plugins["lamp"]; {
		case errs[1] != nil:
			t.Error(errs[1])
		case errs[0] == nil:
			wantRecord(t, "approved first", record, `"1.0.0" waits "2.0.0" before "" granted [lamp=lamp]`)
		default:
			wantCode(t, errs[0], codes.Aborted)
			wantRecord(t, "replaced first", record, `"" waits "2.0.0" before "" granted []`)
		}
		if state.Plugins["lamp"].GetManifest() == nil {
			c.approve(state.Plugins["lamp"])
			state, _ = c.stored()
		}

		// Withdrawn by both, of one generation.
		generation := state.Plugins["lamp"].GetGeneration()
		set := func(user string) func(client clusterv1.ManagementServiceClient) error {
			return func(client clusterv1.ManagementServiceClient) error {
				grants := &clusterv1.RoleGrants{Role: "lamp", ConsensusUser: user}
				_, err := client.SetGrants(t.Context(), &clusterv1.SetGrantsRequest{Plugin: "lamp", Grants: grants, ExpectedGeneration: generation})
				return err
			}
		}
		if errs := both(set(""), set("")); (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("withdrawn by both: %v", errs)
		}
		// A role is given to a node while its plugin goes.
		errs = both(remove("lamp"), func(client clusterv1.ManagementServiceClient) error {
			_, err := client.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"})
			return err
		})
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("removed and assigned: %v", errs)
		}
		if errs[1] == nil {
			if _, err := clients[0].RemovePlugin(t.Context(), &clusterv1.RemovePluginRequest{Name: "lamp", RemoveRoles: true, Wipe: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
