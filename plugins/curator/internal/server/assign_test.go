package server_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Who runs a curator or a member of the consensus store is as good as an owner, so that an operator cannot say which node does. Any other role can.
func TestOperatorsDoNotAssignTheControlPlane(t *testing.T) {
	c := newCluster(t)
	c.runs(c.id)
	otto, ctx := c.addOperator("otto", roleOperator).client(), t.Context()
	olga := c.addOperator("olga", roleOwner).client()
	second := c.nodeWith()
	standby := c.nodeWith()
	c.setState(standby, stateStandby)
	before, _ := c.stored()
	for _, node := range []string{second, standby} {
		for _, dry := range []bool{true, false} {
			for _, role := range []string{"store", "api"} {
				_, err := otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: node, Role: role, DryRun: dry})
				wantCode(t, err, codes.PermissionDenied, `"`+role+`"`, "only an owner", "operator otto", "reeve node role add "+node)
			}
			_, err := otto.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: node, DryRun: dry, Roles: []*clusterv1.RoleAssignment{{Role: "hostsfile"}, {Role: "store"}}})
			wantCode(t, err, codes.PermissionDenied, `"store"`, "only an owner")
		}
	}
	if after, _ := c.stored(); !proto.Equal(before.Nodes[second], after.Nodes[second]) || !proto.Equal(before.Nodes[standby], after.Nodes[standby]) {
		t.Error("something was assigned")
	}
	if _, err := otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "hostsfile"}); err != nil {
		t.Error(err)
	}
	for _, role := range []string{"store", "api"} {
		if _, err := olga.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: role}); err != nil {
			t.Error(err)
		}
	}
	c.tell(c.id, second)
	// What a node has may stay and be taken from it, but not be configured: where a curator listens, and what it answers, is the owner's to say.
	keep := []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}, {Role: "hostsfile"}}
	if _, err := otto.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: second, Roles: keep}); err != nil {
		t.Error(err)
	}
	const elsewhere = `{"listen": "127.0.0.1:0"}`
	keep[1].Configuration = elsewhere
	_, err := otto.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: second, Roles: keep})
	wantCode(t, err, codes.PermissionDenied, `"api"`, "only an owner configures it", "operator otto")
	_, err = otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "api", Configuration: elsewhere})
	wantCode(t, err, codes.PermissionDenied, `"api"`, "only an owner configures it")
	set, err := olga.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: second, Roles: keep})
	if err != nil {
		t.Fatal(err)
	}
	// Without a configuration it keeps the one that it has.
	if node, err := otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "api", KeepConfiguration: true}); err != nil || !proto.Equal(node.GetNode(), set.GetNode()) {
		t.Errorf("%v, %v", node, err)
	}
	_, err = otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "api", Configuration: elsewhere, KeepConfiguration: true})
	wantCode(t, err, codes.InvalidArgument, "keep_configuration")
	// The same in other words is the same, and stays as the owner has written it.
	const reworded = `{"listen":"127.0.0.1\u003a0"}`
	if node, err := otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "api", Configuration: reworded}); err != nil || !proto.Equal(node.GetNode(), set.GetNode()) {
		t.Errorf("%v, %v", node, err)
	}
	keep[1] = &clusterv1.RoleAssignment{Role: "api", Configuration: reworded}
	if node, err := otto.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: second, Roles: keep}); err != nil || !proto.Equal(node.GetNode(), set.GetNode()) {
		t.Errorf("%v, %v", node, err)
	}
	if node, err := olga.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: second, Roles: keep}); err != nil || proto.Equal(node.GetNode(), set.GetNode()) {
		t.Errorf("an owner may choose the words: %v, %v", node, err)
	}
	if _, err := otto.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: second, Role: "api"}); err != nil {
		t.Error(err)
	}
	_, err = otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "api"})
	wantCode(t, err, codes.PermissionDenied, "only an owner")
	// What the owner has taken from it an operator does not bring back while it leaves, whatever else is changed meanwhile.
	if node, err := olga.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: second, Role: "store"}); err != nil || !leaves(node.GetNode(), "store") {
		t.Fatalf("%v, %v", node, err)
	}
	_, err = otto.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "store"})
	wantCode(t, err, codes.PermissionDenied, `"store"`, "only an owner keeps it", "operator otto")
	_, err = otto.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: second, Roles: []*clusterv1.RoleAssignment{{Role: "store"}}})
	wantCode(t, err, codes.PermissionDenied, `"store"`, "only an owner keeps it")
	if node, err := otto.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: second, Role: "hostsfile"}); err != nil || !leaves(node.GetNode(), "store") {
		t.Errorf("%v, %v", node, err)
	}
	if node, err := olga.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: second, Role: "store"}); err != nil || leaves(node.GetNode(), "store") {
		t.Errorf("%v, %v", node, err)
	}
}

func leaves(node *clusterv1.NodeRecord, role string) bool {
	return slices.ContainsFunc(node.GetRoles(), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == role && a.GetLeaving() })
}
