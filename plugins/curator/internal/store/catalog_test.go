package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func change(t *testing.T, s *store.Store, made *store.Change) *store.State {
	t.Helper()
	state, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) { return made, nil })
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// users spells the users of the desired state, and those whose keys go.
func users(desired *consensusv1.DesiredState) string {
	var users []string
	for _, user := range desired.GetUsers() {
		users = append(users, fmt.Sprintf("%s:%d/%d", user.GetConsensusUser(), user.GetBytesQuota(), user.GetLeasesQuota()))
	}
	return strings.Join(users, " ") + " wiped " + strings.Join(desired.GetWipedUsers(), " ")
}

func TestUsersFollowTheGrants(t *testing.T) {
	s, client, first := created(t)
	wantUsers := func(what, want string) {
		t.Helper()
		if got := users(desired(t, client)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	wantUsers("at first", "beam:0/0 wiped ")

	bounded := proto.CloneOf(first.Plugins[2])
	bounded.Grants[0].Grants = []*rolev1.Grant{
		{Name: "limit", Parameters: map[string]string{"store-bytes": "64Mi"}}, {Name: "limit", Parameters: map[string]string{"store-leases": "9", "memory": "1Gi"}},
	}
	change(t, s, &store.Change{Plugins: []*clusterv1.PluginRecord{bounded}})
	wantUsers("with limits", "beam:67108864/9 wiped ")

	withdrawn := proto.CloneOf(bounded)
	withdrawn.Grants = nil
	change(t, s, &store.Change{Plugins: []*clusterv1.PluginRecord{withdrawn}, WipedUsers: nil})
	wantUsers("withdrawn", " wiped ")

	change(t, s, &store.Change{Plugins: []*clusterv1.PluginRecord{bounded}, WipedUsers: []string{"beam"}})
	wantUsers("granted in the same change", "beam:67108864/9 wiped ")

	state := change(t, s, &store.Change{RemovedPlugins: []string{"lighthouse"}, WipedUsers: []string{"ray", "beam"}})
	wantUsers("removed", " wiped beam ray")
	if state.Plugins["lighthouse"] != nil || cmp.Diff(state.Wiped, []string{"beam", "ray"}) != "" {
		t.Errorf("the state: %v, wiped %v", state.Plugins, state.Wiped)
	}
	read, err := s.ReadRecords(t.Context())
	if err != nil || len(read.Plugins) != 2 || cmp.Diff(read.Wiped, state.Wiped) != "" {
		t.Errorf("read: %v, wiped %v, %v", read.Plugins, read.Wiped, err)
	}
	change(t, s, &store.Change{Nodes: []*clusterv1.NodeRecord{node(t)}})
	wantUsers("after another change", " wiped beam ray")

	change(t, s, &store.Change{Plugins: []*clusterv1.PluginRecord{bounded}})
	wantUsers("granted again", "beam:67108864/9 wiped ray")

	change(t, s, &store.Change{RemovedPlugins: []string{"curator"}, WipedUsers: []string{"curator"}})
	wantUsers("the curator's own", "beam:67108864/9 wiped ray")
}

func TestPolicyIsARecord(t *testing.T) {
	s, client, _ := created(t)
	state, err := s.ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unset := &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, Generation: 1}
	if state.Policy != nil || !proto.Equal(state.Demands(), unset) {
		t.Errorf("at first: %v, which means %v", state.Policy, state.Demands())
	}
	required := &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED, Generation: 2}
	for _, state := range []*store.State{change(t, s, &store.Change{Policy: required}), change(t, s, &store.Change{Nodes: []*clusterv1.NodeRecord{node(t)}})} {
		if !proto.Equal(state.Demands(), required) {
			t.Errorf("it is %v", state.Demands())
		}
	}
	if got, err := client.Get(t.Context(), "policy"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("Get: %v, %v", got, err)
	}
	// Whoever decided from another policy decides again.
	runs, other := 0, store.New(store.Config{Client: client, ClusterUser: "curator", AnswerWithin: time.Minute})
	if _, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) {
		if runs++; runs == 1 {
			change(t, other, &store.Change{Policy: required})
		}
		return &store.Change{Policy: required}, nil
	}); err != nil || runs != 2 {
		t.Errorf("decided %d times, %v", runs, err)
	}
}

// A record that was written before there were versions that wait reads as what it was.
func TestOldPluginRecord(t *testing.T) {
	// name "lamp", version "1.0.0", digests {linux/amd64: sha256:00}, manifest {name "lamp", version "1.0.0", roles [{name "light"}]},
	// grants [{role "light", consensus_user "beam"}], generation 3
	old := "\n\x04lamp\x12\x051.0.0\x1a\x18\n\x0blinux/amd64\x12\x09sha256:00\x22\x16\n\x04lamp\x12\x051.0.0\"\x07\n\x05light*\r\n\x05light\x12\x04beam0\x03"
	record, err := store.Decode("plugins/lamp", []byte(old))
	if err != nil {
		t.Fatal(err)
	}
	want := &clusterv1.PluginRecord{
		Name: "lamp", Version: "1.0.0", Digests: map[string]string{"linux/amd64": "sha256:00"},
		Manifest: &rolev1.Manifest{Name: "lamp", Version: "1.0.0", Roles: []*rolev1.RoleManifest{{Name: "light"}}},
		Grants:   []*clusterv1.RoleGrants{{Role: "light", ConsensusUser: "beam"}}, Generation: 3,
	}
	if diff := cmp.Diff(want, record, protocmp.Transform()); diff != "" {
		t.Errorf("read: %s", diff)
	}
}

func TestPluginRecordsThatCannotBe(t *testing.T) {
	lamp := func(change func(*clusterv1.PluginRecord)) *clusterv1.PluginRecord {
		record := plugin("lamp", "beam")
		change(record)
		return record
	}
	waiting := &clusterv1.PluginVersion{Manifest: &rolev1.Manifest{Name: "lamp"}}
	for what, record := range map[string]*clusterv1.PluginRecord{
		"the manifest of another":   lamp(func(r *clusterv1.PluginRecord) { r.Manifest.Name = "candle" }),
		"the name of another":       lamp(func(r *clusterv1.PluginRecord) { r.Name = "candle" }),
		"nothing at all":            lamp(func(r *clusterv1.PluginRecord) { r.Manifest, r.Grants = nil, nil }),
		"grants to what only waits": lamp(func(r *clusterv1.PluginRecord) { r.Manifest, r.Waiting = nil, waiting }),
		"something before what never ran": lamp(func(r *clusterv1.PluginRecord) {
			r.Manifest, r.Grants, r.Waiting, r.Previous = nil, nil, waiting, waiting
		}),
		"another plugin's version that waits": lamp(func(r *clusterv1.PluginRecord) {
			r.Waiting = &clusterv1.PluginVersion{Manifest: &rolev1.Manifest{Name: "candle"}}
		}),
		"a version before without a manifest": lamp(func(r *clusterv1.PluginRecord) { r.Previous = new(clusterv1.PluginVersion) }),
	} {
		value, err := store.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Decode("plugins/lamp", []byte(value)); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	only := lamp(func(r *clusterv1.PluginRecord) { r.Manifest, r.Grants, r.Waiting = nil, nil, waiting })
	value, err := store.Encode(only)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Decode("plugins/lamp", []byte(value)); err != nil {
		t.Errorf("a version that only waits: %v", err)
	}
}

func TestTooMany(t *testing.T) {
	s, _, _ := created(t)
	many := new(store.Change)
	for range 130 {
		many.Nodes = append(many.Nodes, node(t))
	}
	_, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) { return many, nil })
	if err == nil || !strings.Contains(err.Error(), "131 records, more than the 128") {
		t.Errorf("Update: %v", err)
	}
	many.Nodes = many.Nodes[:124]
	change(t, s, many)
}
