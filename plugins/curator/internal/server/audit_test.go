package server_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// told is an entry in a line: who called what with what, and what came of it.
func told(entry *clusterv1.AuditEntry) string {
	var parameters []string
	for _, name := range slices.Sorted(maps.Keys(entry.GetParameters())) {
		parameters = append(parameters, name+"="+entry.GetParameters()[name])
	}
	kind := strings.TrimPrefix(entry.GetKind().String(), "CALLER_")
	return fmt.Sprintf("%s (%s): %s(%s): %s", entry.GetCaller(), kind, entry.GetRpc(), strings.Join(parameters, " "), entry.GetCode())
}

func TestAudit(t *testing.T) {
	c := newCluster(t)
	vera := c.addOperator("vera", roleViewer)
	viewer := vera.client()
	owner := c.asOwner()
	began := time.Now().Add(-time.Second)
	ctx := inTime(t)
	_, _ = viewer.ListNodes(ctx, &clusterv1.ListNodesRequest{})
	_, _ = viewer.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"})
	_, _ = viewer.GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: "reeve-ffffffff"})
	_, _ = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile", DryRun: true})
	_, _ = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile", Configuration: `{"path": "/x"}`})
	_, _ = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile", Configuration: `{"path": "/x"}`})
	_, _ = owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, ExpectedGeneration: 77})
	_, _ = c.as(selfSigned(t, vera.key)).ListNodes(ctx, &clusterv1.ListNodesRequest{})
	_, _ = c.as(selfSigned(t, newKey(t))).ListNodes(ctx, &clusterv1.ListNodesRequest{})
	_, _ = c.as(selfSigned(t, c.node)).ListNodes(ctx, &clusterv1.ListNodesRequest{})
	stream, err := viewer.WatchNode(ctx, &clusterv1.WatchNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	got := c.log(11)
	for i, want := range []string{
		"operator vera (VIEWER): WatchNode(node_id=" + c.id + "): OK",
		"node " + c.id + " (UNSPECIFIED): ListNodes(): PermissionDenied",
		"unknown (UNSPECIFIED): ListNodes(): Unauthenticated",
		"operator vera (UNSPECIFIED): ListNodes(): PermissionDenied",
		"owner (OWNER): SetRoles(expected_generation=77 node_id=" + c.id + "): Aborted",
		"owner (OWNER): AddRole(node_id=" + c.id + " role=hostsfile): OK",
		"owner (OWNER): AddRole(node_id=" + c.id + " role=hostsfile): OK",
		"owner (OWNER): AddRole(dry_run=true node_id=" + c.id + " role=hostsfile): OK",
		"operator vera (VIEWER): GetNode(node_id=reeve-ffffffff): NotFound",
		"operator vera (UNSPECIFIED): AddRole(node_id=" + c.id + " role=hostsfile): PermissionDenied",
		"operator vera (VIEWER): ListNodes(): OK",
	} {
		entry := got[i]
		if told(entry) != want {
			t.Errorf("%s, want %s", told(entry), want)
		}
		if (entry.GetCode() == "OK") != (entry.GetReason() == "") {
			t.Errorf("%s: the reason is %q", want, entry.GetReason())
		}
		if !strings.HasPrefix(entry.GetAddress(), "127.0.0.1:") || entry.GetNodeId() != c.id || entry.GetTime().AsTime().Before(began) {
			t.Errorf("%s: %v", want, entry)
		}
		if i > 0 && entry.GetSequence() >= got[i-1].GetSequence() {
			t.Errorf("%d comes after %d", got[i-1].GetSequence(), entry.GetSequence())
		}
	}
	// The stream has one entry, however long it lasts.
	if _, err := owner.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if newest := c.log(2); newest[0].GetRpc() != "RemoveRole" || newest[1].GetRpc() != "ListAudit" {
		t.Errorf("%v", newest)
	}
}

// Every RPC that declares it is kept, and a new one cannot be missed.
func TestEveryAuditedCallIsKept(t *testing.T) {
	c := newClusterOn(t, etcd, func(config *server.Config) { config.UnprovenBurst = 1000 })
	var before uint64 // the number of the newest entry before the call
	for _, rpc := range rpcs(t) {
		audited := proto.GetExtension(rpc.Options(), clusterv1.E_Permission).(*clusterv1.Permission).GetAudited()
		for _, key := range []*operator{{key: c.owner}, {key: newKey(t)}} {
			_ = call(t, c.dial(c.curator, selfSigned(t, key.key)), rpc)
			entries := c.log(1000)
			kept := func() bool {
				return slices.ContainsFunc(entries, func(entry *clusterv1.AuditEntry) bool {
					return entry.GetSequence() > before && entry.GetRpc() == string(rpc.Name()) && entry.GetCaller() != ""
				})
			}
			// Who asks for an identity is answered before that is kept.
			for ctx := inTime(t); audited && !kept() && rpc.Name() != "ListAudit" && ctx.Err() == nil; {
				entries = c.log(1000)
			}
			if kept() != audited && rpc.Name() != "ListAudit" {
				t.Errorf("%s: audited %t, and it is kept: %t", rpc.Name(), audited, kept())
			}
			for _, entry := range entries {
				before = max(before, entry.GetSequence())
			}
		}
	}
}

// What is secret is nowhere in the log, nor is anything else that was not to be shown.
func TestNothingSecretIsKept(t *testing.T) {
	c := newCluster(t)
	const canary = "canary-6f1d"
	owner, ctx := c.asOwner(), t.Context()
	schema := `{"type": "object", "additionalProperties": false, "properties": {"password": {"type": "string", "pattern": "^[0-9]+$"}, "port": {"maximum": 7},
		"ratio": {"multipleOf": 2}, "kind": {"enum": ["a"]}, "list": {"items": {"const": 1}}}}`
	if _, err := owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: plugin("vault", &rolev1.RoleManifest{Name: "vault", ConfigurationSchema: schema}), Digests: digests}); err != nil {
		t.Fatal(err)
	}
	configurations := []string{
		`{"password": "` + canary + `"}`, `{"port": 6146013}`, `{"ratio": 6146013}`, `{"kind": "` + canary + `"}`, `{"list": ["` + canary + `"]}`,
		`{"` + canary + `": 1}`, `{"password": ` + canary + `}`, `["` + canary + `"]`, canary, `{"password": "` + strings.Repeat(canary, 30000) + `"}`,
	}
	for i, configuration := range configurations {
		_, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "vault", Configuration: configuration})
		if wantCode(t, err, codes.InvalidArgument); err == nil {
			t.Fatalf("%s is accepted", configuration)
		}
		if i < 5 && (strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "6146013")) {
			t.Errorf("the caller's terminal shows the value: %v", err)
		}
		_, err = owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{{Role: "vault", Configuration: configuration}}})
		wantCode(t, err, codes.InvalidArgument)
	}
	_, _ = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "vault", Configuration: `{"password": "6146013"}`})
	_, _ = owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{{Role: canary}}})
	_, _ = owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{{Role: canary + "!"}}})
	_, _ = owner.AddOperator(ctx, &clusterv1.AddOperatorRequest{Name: "bob", PublicKey: []byte(canary)})
	_, _ = owner.Login(ctx, &clusterv1.LoginRequest{PublicKey: []byte(canary)})
	for _, manifest := range []*rolev1.Manifest{
		plugin(canary), plugin(canary, &rolev1.RoleManifest{Name: "store"}), plugin(canary, &rolev1.RoleManifest{Name: canary, Provides: []string{"reeve.cluster.v1"}}),
		plugin("x", &rolev1.RoleManifest{Name: "x", ConfigurationSchema: `{"pattern": "(` + canary + `"}`}),
		plugin("x", &rolev1.RoleManifest{Name: "x", ConfigurationSchema: `{"$ref": "file:///` + canary + `"}`}),
		plugin("extras", &rolev1.RoleManifest{Name: "hostsfile", Requires: []string{canary}}),
		plugin("x", &rolev1.RoleManifest{Name: "x", Grants: []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{canary + "!": canary}}}}),
	} {
		_, _ = owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: manifest, Digests: digests, Grants: []*clusterv1.RoleGrants{{Role: canary}}})
	}
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	_, err := owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: plugin("extras", &rolev1.RoleManifest{Name: "hostsfile", Requires: []string{canary}}), Digests: digests})
	wantCode(t, err, codes.FailedPrecondition, canary)
	entries := c.log(100)
	if len(entries) < 30 {
		t.Fatalf("%d entries", len(entries))
	}
	for _, entry := range entries {
		text := protojson.Format(entry)
		if strings.Contains(text, canary) || strings.Contains(text, "6146013") {
			t.Errorf("it is in %s", text)
		}
		if strings.Contains(entry.GetReason(), "ended with") {
			t.Errorf("nobody has said what may be kept of %s", text)
		}
	}
	// What is to be shown is: otherwise this test would pass with nothing kept at all.
	_, _ = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: canary, Role: "vault"})
	if !strings.Contains(protojson.Format(c.newest()), canary) {
		t.Error("what is shown is not in the log")
	}
}

// Callers who prove nothing have some entries; the rest of them is counted, and none is forgotten.
func TestUnprovenCallersAreCounted(t *testing.T) {
	c := newClusterOn(t, etcd, func(config *server.Config) { config.UnprovenBurst, config.UnprovenEvery = 5, time.Second })
	const calls = 60
	began := time.Now()
	for range calls {
		// The connection of a stranger is closed soon after the first refusal.
		_, err := c.as(selfSigned(t, newKey(t))).GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: strings.Repeat("x", 10000)})
		wantCode(t, err, codes.Unauthenticated)
	}
	ctx := inTime(t)
	for {
		counted, written := uint64(0), 0
		// A call that lists the log is kept itself: some hundred of them and the strangers' entries are none of the newest.
		got, err := c.client().Get(t.Context(), "audit/"+string(store.AuditUnproven)+"/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range got.Kvs {
			entry := new(clusterv1.AuditEntry)
			if err := proto.Unmarshal(kv.Value, entry); err != nil {
				t.Fatal(err)
			}
			if entry.GetCaller() == "unknown" {
				written++
				counted += 1 + entry.GetSuppressed()
				if len(entry.GetParameters()["node_id"]) > 64 {
					t.Fatalf("an entry keeps %d bytes of a stranger", len(entry.GetParameters()["node_id"]))
				}
			}
		}
		if counted == calls {
			if most := 5 + 1 + int(time.Since(began)/time.Second); written > most {
				t.Errorf("the calls have %d entries, want at most %d", written, most)
			}
			return
		}
		if ctx.Err() != nil || counted > calls {
			t.Fatalf("%d calls were counted in %d entries, of %d", counted, written, calls)
		}
	}
}

func TestAuditPages(t *testing.T) {
	c := newCluster(t)
	other := identity.NodeID(public(c.secondNode()))
	second := start(t, etcd, c.prefix, func(config *server.Config) { config.NodeID = other }).ready()
	clients := []clusterv1.ManagementServiceClient{c.asOwner(), clusterv1.NewManagementServiceClient(c.dial(second, selfSigned(t, c.owner)))}
	const each = 60
	var group sync.WaitGroup
	for i, client := range clients {
		for n := range each {
			group.Go(func() {
				if _, err := client.GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: fmt.Sprintf("node-of-%d-%d", i, n)}); err == nil {
					t.Error("there is such a node")
				}
			})
		}
	}
	group.Wait()
	all := c.log(1000)
	kept := make(map[string]bool)
	for i, entry := range all {
		if id := entry.GetParameters()["node_id"]; id != "" {
			kept[id] = true
		}
		if i > 0 && entry.GetSequence() >= all[i-1].GetSequence() {
			t.Errorf("entry %d has number %d, the newer one before it %d", i, entry.GetSequence(), all[i-1].GetSequence())
		}
	}
	if len(kept) != 2*each {
		t.Errorf("%d calls were kept of %d", len(kept), 2*each)
	}
	var paged []*clusterv1.AuditEntry
	for before := all[0].GetSequence() + 1; ; {
		page, err := clients[len(paged)%2].ListAudit(t.Context(), &clusterv1.ListAuditRequest{Limit: 7, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.GetEntries()) > 7 || page.GetMore() && len(page.GetEntries()) != 7 {
			t.Fatalf("a page of %d", len(page.GetEntries()))
		}
		paged = append(paged, page.GetEntries()...)
		if !page.GetMore() {
			break
		}
		before = paged[len(paged)-1].GetSequence()
	}
	if !slices.EqualFunc(all, paged, func(a, b *clusterv1.AuditEntry) bool { return proto.Equal(a, b) }) {
		t.Errorf("%d entries in pages, %d at once", len(paged), len(all))
	}
	page, err := clients[0].ListAudit(t.Context(), &clusterv1.ListAuditRequest{Before: 1})
	if err != nil || len(page.GetEntries()) != 0 || page.GetMore() {
		t.Errorf("before everything: %v, %v", page, err)
	}
	_, err = clients[0].ListAudit(t.Context(), &clusterv1.ListAuditRequest{Limit: 1001})
	wantCode(t, err, codes.InvalidArgument, "limit")
}

// The log does not grow for ever: whoever writes to it removes the oldest, of its own kind only.
func TestAuditIsTrimmed(t *testing.T) {
	c := newCluster(t)
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	full := func(shelf store.AuditShelf) {
		for range shelf.Most() / store.AuditBatch {
			batch := make([]store.AuditRecord, store.AuditBatch)
			for i := range batch {
				batch[i] = store.AuditRecord{Shelf: shelf, Entry: &clusterv1.AuditEntry{Caller: "operator otto", Kind: clusterv1.Caller_CALLER_OPERATOR, Rpc: "Old"}}
			}
			if err := records.AppendAudit(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(shelf store.AuditShelf) int64 {
		got, err := c.client().Get(t.Context(), "audit/"+string(shelf)+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return got.Count
	}
	full(store.AuditUnproven)
	full(store.AuditCalls)
	if _, err := c.asOwner().ListNodes(t.Context(), &clusterv1.ListNodesRequest{}); err != nil {
		t.Fatal(err)
	}
	for ctx := inTime(t); count(store.AuditCalls) > int64(store.AuditCalls.Most())*9/10; {
		if ctx.Err() != nil {
			t.Fatalf("%d entries are left", count(store.AuditCalls))
		}
	}
	if got := count(store.AuditUnproven); got != int64(store.AuditUnproven.Most()) {
		t.Errorf("%d entries of strangers are left", got)
	}
	if c.newest().GetRpc() != "ListNodes" {
		t.Error("the newest entry was removed")
	}
	// Changes are counted as they are made, and whoever makes all of them does not push out the first one of somebody else.
	first := &clusterv1.AuditEntry{Caller: "owner", Kind: clusterv1.Caller_CALLER_OWNER, Rpc: "AddOperator", Parameters: map[string]string{"name": "alice"}}
	if err := records.AppendAudit(t.Context(), []store.AuditRecord{{Shelf: store.AuditChanges, Entry: first}}); err != nil {
		t.Fatal(err)
	}
	full(store.AuditChanges)
	c.addOperator("albert", roleViewer)
	for ctx := inTime(t); count(store.AuditChanges) > int64(store.AuditChanges.Most())*9/10; {
		if ctx.Err() != nil {
			t.Fatalf("%d changes are left", count(store.AuditChanges))
		}
	}
	var added []string
	for _, entry := range c.entries(store.AuditChanges) {
		if entry.GetRpc() == "AddOperator" {
			added = append(added, entry.GetParameters()["name"])
		}
	}
	if !slices.Equal(added, []string{"alice", "albert"}) {
		t.Errorf("it is kept that %q were added", added)
	}
}

// An entry is there whenever the answer is, also when the curator ends right after it.
func TestTheAnswerComesAfterTheEntry(t *testing.T) {
	c := newCluster(t)
	for range 5 {
		if _, err := c.asOwner().ListPlugins(t.Context(), &clusterv1.ListPluginsRequest{}); err != nil {
			t.Fatal(err)
		}
		got, err := c.client().Get(t.Context(), "audit/call/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		entry := new(clusterv1.AuditEntry)
		if err := proto.Unmarshal(got.Kvs[len(got.Kvs)-1].Value, entry); err != nil || entry.GetRpc() != "ListPlugins" {
			t.Fatalf("the newest entry is %v, %v", entry, err)
		}
		if _, err := c.client().Delete(t.Context(), "audit/call/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
}

// A caller who gives up is kept, too: nobody looks unseen by hanging up.
func TestCallersWhoGiveUpAreKept(t *testing.T) {
	c := newCluster(t)
	client := c.asOwner()
	if _, err := client.ListPlugins(t.Context(), &clusterv1.ListPluginsRequest{}); err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		return len(slices.DeleteFunc(c.log(1000), func(e *clusterv1.AuditEntry) bool { return e.GetRpc() != "ListNodes" }))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answered := 0
	for n := range 50 {
		giving, up := context.WithTimeout(t.Context(), time.Duration(n)*100*time.Microsecond)
		if _, err := client.ListNodes(giving, &clusterv1.ListNodesRequest{}); err == nil {
			answered++
		}
		up()
	}
	if got := kept(); got < answered {
		t.Errorf("%d calls were answered and %d kept", answered, got)
	}
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}
}

// A read that cannot be kept is not answered, and one that is refused is refused as it would be.
func TestAuditCannotBeWritten(t *testing.T) {
	own, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := newClusterOn(t, own, nil)
	owner, stranger := c.asOwner(), c.as(selfSigned(t, newKey(t)))
	if err := own.Fill(t.Context(), own.Raw(t)); err != nil {
		t.Fatal(err)
	}
	_, err = owner.ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	wantCode(t, err, codes.Unavailable, "ListNodes is not answered", "audit log", "space")
	_, err = owner.GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: "reeve-ffffffff"})
	wantCode(t, err, codes.Unavailable, "audit log")
	_, err = owner.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"})
	wantCode(t, err, codes.Unavailable, "space")
	stream, err := owner.WatchNode(t.Context(), &clusterv1.WatchNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantCode(t, err, codes.Unavailable, "audit log")
	_, err = stranger.ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	wantCode(t, err, codes.Unauthenticated)
	if _, err := c.asNode().IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{}); err != nil {
		t.Errorf("what is not audited: %v", err)
	}
	if err := own.Disarm(t.Context(), own.Raw(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.ListNodes(t.Context(), &clusterv1.ListNodesRequest{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
