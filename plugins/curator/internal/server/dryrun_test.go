package server_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// A dry run checks as the real one, and answers as it would, and changes nothing.
func TestDryRun(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	bob := c.addOperator("bob", roleViewer)
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	waits := c.offer(lamp("1.0.0", readPath("/srv")), digestOf("a"))
	before, err := records.ReadAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	added, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile", DryRun: true})
	if err != nil || roles(added.GetNode()) != `api@1{"listen": "127.0.0.1:0"} hostsfile@2 store@1` {
		t.Errorf("AddRole: %v, %v", added, err)
	}
	_, err = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "ghost", DryRun: true})
	wantCode(t, err, codes.NotFound)
	_, err = owner.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: "api", DryRun: true})
	wantCode(t, err, codes.FailedPrecondition, "last of the cluster")
	set, err := owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}, {Role: "lighthouse"}}, DryRun: true})
	if err != nil || roles(set.GetNode()) != `api@2 lighthouse@2 store@1` {
		t.Errorf("SetRoles: %v, %v", set, err)
	}
	third := plugin("third", &rolev1.RoleManifest{Name: "third", ConsensusUser: "third"})
	plugged, err := owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: third, Digests: digests, DryRun: true})
	if err != nil || plugged.GetPlugin().GetGeneration() != 1 || plugged.GetPlugin().GetWaiting() == nil || len(plugged.GetPlugin().GetGrants()) != 0 {
		t.Errorf("AddPlugin: %v, %v", plugged, err)
	}
	_, err = owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: plugin("third", &rolev1.RoleManifest{Name: "store"}), Digests: digests, DryRun: true})
	wantCode(t, err, codes.AlreadyExists)
	plugged, err = owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: third, Digests: digests, Approve: true, DryRun: true})
	if err != nil || plugged.GetPlugin().GetWaiting() != nil || len(plugged.GetPlugin().GetGrants()) != 1 {
		t.Errorf("AddPlugin, approved: %v, %v", plugged, err)
	}
	dry := approval(waits)
	dry.DryRun = true
	approved, err := owner.ApprovePlugin(ctx, dry)
	if err != nil || approved.GetPlugin().GetVersion() != "1.0.0" || len(approved.GetPlugin().GetGrants()) != 1 {
		t.Errorf("ApprovePlugin: %v, %v", approved, err)
	}
	dry.Version = "1.0.1"
	_, err = owner.ApprovePlugin(ctx, dry)
	wantCode(t, err, codes.Aborted)
	withdrawn, err := owner.SetGrants(ctx, &clusterv1.SetGrantsRequest{Plugin: "extras", Grants: &clusterv1.RoleGrants{Role: "lighthouse"}, DryRun: true})
	if err != nil || withdrawn.GetPlugin().GetGeneration() != 2 || len(withdrawn.GetPlugin().GetGrants()) != 0 {
		t.Errorf("SetGrants: %v, %v", withdrawn, err)
	}
	_, err = owner.SetGrants(ctx, &clusterv1.SetGrantsRequest{Plugin: "lamp", Grants: &clusterv1.RoleGrants{Role: "lamp"}, DryRun: true})
	wantCode(t, err, codes.FailedPrecondition)
	reported, err := owner.AddPluginReport(ctx, &clusterv1.AddPluginReportRequest{
		Plugin: "lamp", Digest: digestOf("a")["linux/amd64"], Report: signReport(t, c.owner, reportOn("a", "1.0.0")), DryRun: true,
	})
	if err != nil || len(reported.GetPlugin().GetReports()) != 1 || reported.GetPlugin().GetGeneration() != 2 {
		t.Errorf("AddPluginReport: %v, %v", reported, err)
	}
	removed, err := owner.RemovePlugin(ctx, &clusterv1.RemovePluginRequest{Name: "extras", Wipe: true, DryRun: true})
	if err != nil || !proto.Equal(removed.GetPlugin(), before.Plugins["extras"]) {
		t.Errorf("RemovePlugin: %v, %v", removed, err)
	}
	_, err = owner.RemovePlugin(ctx, &clusterv1.RemovePluginRequest{Name: "curator", RemoveRoles: true, DryRun: true})
	wantCode(t, err, codes.FailedPrecondition)
	required := &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED}
	policy, err := owner.SetPolicy(ctx, &clusterv1.SetPolicyRequest{Policy: required, DryRun: true})
	if err != nil || policy.GetPolicy().GetGeneration() != 2 {
		t.Errorf("SetPolicy: %v, %v", policy, err)
	}
	wiped, err := owner.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: "hostsfile", Wipe: true, DryRun: true})
	if err != nil || len(wiped.GetNode().GetWipedRoles()) != 1 {
		t.Errorf("RemoveRole: %v, %v", wiped, err)
	}
	operator, err := owner.AddOperator(ctx, &clusterv1.AddOperatorRequest{Name: "alice", Role: roleViewer, PublicKey: public(newKey(t)), DryRun: true})
	if err != nil || operator.GetOperator().GetName() != "alice" || operator.GetOperator().GetId() != "" {
		t.Errorf("AddOperator: %v, %v", operator, err)
	}
	revoked, err := owner.RevokeOperator(ctx, &clusterv1.RevokeOperatorRequest{Name: "bob", DryRun: true})
	if err != nil || !proto.Equal(revoked.GetOperator(), bob.record) {
		t.Errorf("RevokeOperator: %v, %v", revoked, err)
	}
	_, err = owner.RevokeOperator(ctx, &clusterv1.RevokeOperatorRequest{Name: "alice", DryRun: true})
	wantCode(t, err, codes.NotFound)

	drained, err := owner.DrainNode(ctx, &clusterv1.DrainNodeRequest{NodeId: c.id, DryRun: true})
	if err != nil || !drained.GetNode().GetDrained() {
		t.Errorf("DrainNode: %v, %v", drained, err)
	}
	_, err = owner.DecommissionNode(ctx, &clusterv1.DecommissionNodeRequest{NodeId: c.id, DryRun: true})
	wantCode(t, err, codes.FailedPrecondition, "last of the cluster")
	_, err = owner.DeleteNode(ctx, &clusterv1.DeleteNodeRequest{NodeId: c.id, Force: true, DryRun: true})
	wantCode(t, err, codes.FailedPrecondition, "last of the cluster")
	_, err = owner.ReplaceStoreMember(ctx, &clusterv1.ReplaceStoreMemberRequest{NodeId: c.id, DryRun: true})
	wantCode(t, err, codes.FailedPrecondition, "the consensus store")
	rotated, err := owner.RotateCA(ctx, &clusterv1.RotateCARequest{Step: clusterv1.CAStep_CA_STEP_PREPARE, DryRun: true})
	if err != nil || rotated.GetPhase() != clusterv1.CAPhase_CA_PHASE_PREPARED {
		t.Errorf("RotateCA: %v, %v", rotated, err)
	}

	after, err := records.ReadAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if after.Epoch != before.Epoch || !proto.Equal(after.Nodes[c.id], before.Nodes[c.id]) || len(after.Plugins) != len(before.Plugins) || len(after.Operators) != 1 ||
		!proto.Equal(after.Plugins["extras"], before.Plugins["extras"]) || !proto.Equal(after.Plugins["lamp"], waits) || after.Policy != nil || len(after.Wiped) != 0 || len(after.CA) != 1 {
		t.Errorf("something was changed: epoch %d, then %d", before.Epoch, after.Epoch)
	}
	for _, entry := range c.log(24) {
		if entry.GetParameters()["dry_run"] != "true" {
			t.Errorf("%s does not say that it was a dry run", told(entry))
		}
	}
	// Every request that could be one is one above, or in TestDryRunsOfEnrolment.
	var could []string
	for _, rpc := range rpcs(t) {
		if rpc.Input().Fields().ByName("dry_run") != nil {
			could = append(could, string(rpc.Name()))
		}
	}
	slices.Sort(could)
	if got := strings.Join(could, " "); got != "AcceptNode AddOperator AddPlugin AddPluginReport AddRole ApproveNode ApprovePlugin CreateTicket "+
		"DecommissionNode DeleteNode DrainNode RemovePlugin RemoveRole ReplaceStoreMember RevokeOperator RevokeTicket RotateCA SetGrants SetLabels SetPolicy SetRoles" {
		t.Errorf("dry runs of %s", got)
	}
}
