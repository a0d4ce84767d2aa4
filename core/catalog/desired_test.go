package catalog

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// example is a node with every kind of role. None of them is named as the product's own.
func example() *Assignment {
	offer := func(plugin string, roles ...*rolev1.RoleManifest) *clusterv1.PluginRecord {
		return &clusterv1.PluginRecord{Name: plugin, Version: "1.0.0", Manifest: &rolev1.Manifest{Name: plugin, Roles: roles}}
	}
	return &Assignment{
		Roles: []*clusterv1.RoleAssignment{
			{Role: "api", Configuration: `{"listen":"127.0.0.1:0"}`, Generation: 1}, {Role: "drummer", Generation: 3}, {Role: "ghost"}, {Role: "hermit"}, {Role: "store"}, {Role: "told"},
		},
		Plugins: []*clusterv1.PluginRecord{
			offer("base",
				&rolev1.RoleManifest{Name: "store", Provides: []string{roles.CapabilityConsensus}, StartsFromCache: true},
				&rolev1.RoleManifest{Name: "api", ConsensusUser: "api-user", Provides: []string{roles.CapabilityCluster}, StartsFromCache: true}),
			offer("band",
				&rolev1.RoleManifest{Name: "drummer", InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP},
				&rolev1.RoleManifest{Name: "hermit", StartsFromCache: true, InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE},
				&rolev1.RoleManifest{Name: "told"}),
		},
	}
}

func TestChoose(t *testing.T) {
	tests := map[string]struct {
		phase     seal.Phase
		state     membership.State
		contacted bool
		runs      string // the roles that may run
	}{
		"making a cluster":           {seal.Forming, membership.Bootstrapping, false, "api store"},
		"formed":                     {seal.Formed, membership.Bootstrapping, false, "api store"},
		"made, no contact yet":       {seal.Member, membership.Bootstrapping, false, "api hermit store"},
		"restarted":                  {seal.Member, membership.Split, false, "api hermit store"},
		"just started":               {seal.Member, membership.Unknown, false, "api hermit store"},
		"home":                       {seal.Member, membership.Home, true, "api drummer ghost hermit store told"},
		"cut off":                    {seal.Member, membership.Split, true, "api ghost hermit store told"},
		"registering":                {seal.Registering, membership.Foreign, false, ""},
		"committing":                 {seal.Committing, membership.Trusted, false, ""},
		"taken in, no contact yet":   {seal.Member, membership.Trusted, false, "api hermit store"},
		"removed":                    {seal.Member, membership.Disowning, true, ""},
		"removed while it was alone": {seal.Member, membership.Disowning, false, ""},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			var runs []string
			for _, role := range choose(example(), test.phase, membership.Status{State: test.state}, test.contacted, nil).Roles {
				if role.Hold == "" && role.Gate == "" {
					runs = append(runs, role.Assignment.GetRole())
				}
				if known := role.Assignment.GetRole() != "ghost"; known != (role.Plugin != nil) {
					t.Errorf("plugin of %s: %v", role.Assignment.GetRole(), role.Plugin)
				}
			}
			if got := strings.Join(runs, " "); got != test.runs {
				t.Errorf("may run: %s, want %s", got, test.runs)
			}
		})
	}
	t.Run("drained", func(t *testing.T) {
		drained := example()
		drained.Drained = true
		for _, role := range choose(drained, seal.Member, membership.Status{State: membership.Home}, true, nil).Roles {
			name := role.Assignment.GetRole()
			if want := map[bool]string{true: "the node is drained"}[name != "store" && name != "api"]; role.Hold != want {
				t.Errorf("%s: %q", name, role.Hold)
			}
		}
	})
	t.Run("leaving", func(t *testing.T) {
		leaving := example()
		leaving.Roles[4].Leaving = true
		for _, role := range choose(leaving, seal.Member, membership.Status{State: membership.Home}, true, nil).Roles {
			if role.Hold != "" {
				t.Errorf("%s: %q", role.Assignment.GetRole(), role.Hold)
			}
		}
	})
	t.Run("a problem that does not pass", func(t *testing.T) {
		for _, role := range choose(example(), seal.Member, membership.Status{State: membership.Split}, false, &membership.Problem{Role: "store", Message: "gone"}).Roles {
			if want := map[bool]string{true: "gone"}[role.Assignment.GetRole() == "store"]; role.Failed != want {
				t.Errorf("%s: %q", role.Assignment.GetRole(), role.Failed)
			}
		}
	})
}

func TestClusterUser(t *testing.T) {
	if got := example().ClusterAPIUser(); got != "api-user" {
		t.Errorf("%q", got)
	}
	// Where the role is not on this node, it is what the cluster said.
	elsewhere := &Assignment{Roles: example().Roles[1:], Plugins: example().Plugins, ClusterUser: "keeper"}
	if got := elsewhere.ClusterAPIUser(); got != "keeper" {
		t.Errorf("%q", got)
	}
}

func TestGenesisProblems(t *testing.T) {
	if problems := example().check(); len(problems) != 1 || !strings.Contains(problems[0].Error(), `"ghost"`) {
		t.Errorf("%v", problems)
	}
	a := example()
	a.Plugins = append(a.Plugins, &clusterv1.PluginRecord{Name: "copy", Manifest: &rolev1.Manifest{Name: "copy", Roles: []*rolev1.RoleManifest{
		{Name: "told", ConsensusUser: "api-user"},
	}}})
	a.Roles = a.Roles[1:4]
	var all strings.Builder
	for _, problem := range a.check() {
		all.WriteString(problem.Error() + "\n")
	}
	for _, want := range []string{`band and copy both offer a role "told"`, `base and copy both declare the ConsensusUser "api-user"`, `"ghost"`, roles.CapabilityCluster, roles.CapabilityConsensus} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("nothing speaks of %s:\n%s", want, all.String())
		}
	}
}

func TestAssignmentIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache", "assignment.json")
	if _, err := ReadAssignment(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	want := example()
	want.Drained, want.ClusterUser = true, "keeper"
	if err := WriteAssignment(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadAssignment(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || !got.equal(want) {
		t.Error(diff)
	}
	got.Roles[0].Configuration = "{}"
	if got.equal(want) {
		t.Error("a changed configuration is no change")
	}
}

// A core that is stopped between what the cluster assigned and the node's being a member hears of its roles first, and is told the user of the cluster API later: what
// is kept has it all the same.
func TestTheClusterUserIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache", "assignment.json")
	var views event.Value[*cluster.View]
	var committed event.Value[*Assignment]
	var phase event.Value[seal.Phase]
	phase.Set(seal.Committing)
	c := Chooser{
		Log: hclog.NewNullLogger(), Path: path, Known: &Assignment{}, Committed: &committed, Phase: &phase, Membership: new(event.Value[membership.Status]),
		Problem: new(event.Value[*membership.Problem]), View: &views, Desired: new(event.Value[roles.Desired]),
		Full: new(event.Value[map[string]string]), Imported: new(event.Value[string]),
	}
	views.Set(&cluster.View{Node: &clusterv1.NodeRecord{Roles: example().Roles[1:]}, Plugins: example().Plugins})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	chosen := c.Desired.Watch()
	// until waits for what is kept.
	until := func(user string, roles int) {
		t.Helper()
		for {
			if kept, err := ReadAssignment(path); err == nil && kept.ClusterUser == user && len(kept.Roles) == roles {
				return
			}
			if _, err := chosen.Next(ctx); err != nil {
				kept, problem := ReadAssignment(path)
				t.Fatalf("kept is %+v, %v", kept, problem)
			}
		}
	}
	if _, err := c.Desired.Wait(ctx, func(d roles.Desired) bool { return len(d.Roles) == 5 }); err != nil {
		t.Fatal(err)
	}
	if kept, err := ReadAssignment(path); err == nil {
		t.Errorf("kept before the node is a member: %+v", kept)
	}
	// As the commit does it.
	assigned := &Assignment{Roles: example().Roles[2:], Plugins: example().Plugins, ClusterUser: "keeper"}
	if err := WriteAssignment(path, assigned); err != nil {
		t.Fatal(err)
	}
	committed.Set(assigned)
	phase.Set(seal.Member)
	until("keeper", 5)
	views.Set(&cluster.View{Node: &clusterv1.NodeRecord{Roles: example().Roles[3:]}, Plugins: example().Plugins})
	until("keeper", 3)
	cancel()
	<-done
	if user := (*Assignment)(nil).ClusterAPIUser(); user != "" {
		t.Errorf("the user of no assignment: %q", user)
	}
}

func FuzzParseAssignment(f *testing.F) {
	f.Add([]byte(`{"version":1,"roles":[{"role":"a"}],"plugins":[{"name":"p"}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		a, err := parseAssignment(content)
		if (a == nil) == (err == nil) {
			t.Fatalf("%v, %v", a, err)
		}
	})
}
