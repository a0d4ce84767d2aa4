package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

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

func TestPolicyOfCUKSources(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	set := func(dryRun bool, sources ...string) (*clusterv1.ClusterPolicy, error) {
		response, err := owner.SetPolicy(ctx, &clusterv1.SetPolicyRequest{DryRun: dryRun, Policy: &clusterv1.ClusterPolicy{
			Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, CukSources: sources,
		}})
		return response.GetPolicy(), err
	}
	w := watch(t, c.asNode())
	w.await("all sources at first", func(r *clusterv1.WatchResponse) bool {
		return r.GetPolicy() != nil && len(r.GetPolicy().GetCukSources()) == 0
	})
	told := uint64(1)
	for n, step := range []struct {
		dryRun       bool
		wanted, want []string
		generation   uint64
	}{
		{true, []string{"recovery"}, []string{"recovery"}, 2},
		{false, []string{"recovery"}, []string{"recovery"}, 2},
		{false, []string{"recovery", "recovery"}, []string{"recovery"}, 2},
		{false, []string{"tpm"}, []string{"recovery", "tpm"}, 3},
		{false, []string{"tpm", "recovery"}, []string{"recovery", "tpm"}, 3},
		{false, []string{"tpm", "cluster"}, []string{"cluster", "recovery", "tpm"}, 4},
		{true, nil, nil, 5},
		{false, nil, nil, 5},
	} {
		policy, err := set(step.dryRun, step.wanted...)
		if err != nil || !slices.Equal(policy.GetCukSources(), step.want) || policy.GetGeneration() != step.generation {
			t.Errorf("%d: %v, %v", n, policy, err)
		}
		if step.dryRun {
			continue
		}
		if got, err := owner.GetPolicy(ctx, &clusterv1.GetPolicyRequest{}); err != nil || !slices.Equal(got.GetPolicy().GetCukSources(), step.want) {
			t.Errorf("%d: it is %v, %v", n, got, err)
		}
		if step.generation > told {
			told = step.generation
			w.await("the sources", func(r *clusterv1.WatchResponse) bool {
				return r.GetPolicy().GetGeneration() == told && slices.Equal(r.GetPolicy().GetCukSources(), step.want)
			})
		}
	}
	for _, sources := range [][]string{{"peers"}, {""}, {"recovery", "Tpm"}, make([]string, 10_000), {strings.Repeat("x", 10_000)}} {
		_, err := set(false, sources...)
		wantCode(t, err, codes.InvalidArgument, "policy.cuk_sources")
		if len(err.Error()) > 1024 {
			t.Errorf("the answer has %d bytes", len(err.Error()))
		}
	}
}
