package server_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

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
	tests := map[string]struct {
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
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
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
