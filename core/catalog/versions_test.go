package catalog

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

func grant(path string) *rolev1.Grant {
	return &rolev1.Grant{Name: "read-path", Parameters: map[string]string{"path": path}}
}

// upgraded is the example with another version of its band, which asks for more and offers one role less.
func upgraded() *Assignment {
	a := example()
	band := a.Plugins[1]
	band.Previous = &clusterv1.PluginVersion{Version: band.GetVersion(), Manifest: band.GetManifest(), Digests: map[string]string{store.Platform: "sha256:1"}}
	band.Previous.Manifest.Roles[0].Grants = []*rolev1.Grant{grant("/a")}
	band.Version, band.Digests = "2.0.0", map[string]string{store.Platform: "sha256:2"}
	band.Manifest = &rolev1.Manifest{Name: "band", Roles: []*rolev1.RoleManifest{
		{Name: "drummer", Grants: []*rolev1.Grant{grant("/a"), grant("/b")}}, {Name: "told", StartsFromCache: true},
	}}
	band.Grants = []*clusterv1.RoleGrants{{Role: "drummer", Grants: []*rolev1.Grant{grant("/a"), grant("/b")}}, {Role: "told"}}
	return a
}

func byRole(desired roles.Desired) map[string]roles.DesiredRole {
	found := make(map[string]roles.DesiredRole)
	for _, d := range desired.Roles {
		found[d.Assignment.GetRole()] = d
	}
	return found
}

func TestThereIsSomethingToGoBackTo(t *testing.T) {
	found := byRole(Chooser{Known: upgraded()}.complete(seal.Member, membership.Status{State: membership.Split}, false, nil, map[string]string{"told": "filled the disk"}))
	if d := found["api"]; d.Previous != nil {
		t.Errorf("%v", d)
	}
	d := found["drummer"]
	if d.Plugin.GetVersion() != "2.0.0" || d.Previous == nil || d.Previous.Plugin.GetVersion() != "1.0.0" {
		t.Fatalf("%v", d)
	}
	if kept := d.Previous.Plugin.GetGrants()[0].GetGrants(); len(kept) != 1 || kept[0].GetParameters()["path"] != "/a" {
		t.Errorf("the grants of the version before: %v", kept)
	}
	// Each version is held back for what its own manifest says.
	if d := found["told"]; d.Gate != "" || d.Previous.Gate == "" || d.Failed != "filled the disk" || d.Previous.Failed != d.Failed {
		t.Errorf("%v, %v", d, d.Previous)
	}
	// A role that the new version does not offer.
	if d := found["hermit"]; d.Plugin.GetVersion() != "2.0.0" || d.Previous.Plugin.GetVersion() != "1.0.0" || d.Previous.Hold+d.Previous.Gate != "" {
		t.Errorf("%v, %v", d, d.Previous)
	}
	if d := found["ghost"]; d.Plugin != nil || d.Previous != nil {
		t.Errorf("%v", d)
	}
}

func TestPolicy(t *testing.T) {
	lacks := func(plugin.Spec) []*clusterv1.Missing {
		return []*clusterv1.Missing{{Name: "cgroup-memory", Reason: "no control groups"}, {Name: "own-uid"}}
	}
	for name, test := range map[string]struct {
		policy clusterv1.IsolationPolicy
		lacks  func(plugin.Spec) []*clusterv1.Missing
		held   string
	}{
		"best effort":      {clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, lacks, ""},
		"nothing said":     {0, lacks, ""},
		"required":         {clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED, lacks, "drummer hermit told"},
		"required and had": {clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED, func(plugin.Spec) []*clusterv1.Missing { return nil }, ""},
	} {
		known := example()
		known.Policy = &clusterv1.ClusterPolicy{Isolation: test.policy, Generation: 4}
		// As it is after a restart, too.
		path := filepath.Join(t.TempDir(), "cache", "assignment.json")
		if err := WriteAssignment(path, known); err != nil {
			t.Fatal(err)
		}
		known, err := ReadAssignment(path)
		if err != nil || known.Policy.GetGeneration() != 4 {
			t.Fatalf("%v, %v", known, err)
		}
		var held []string
		for _, d := range (Chooser{Known: known, Missing: test.lacks}).complete(seal.Member, membership.Status{State: membership.Home}, true, nil, nil).Roles {
			if d.Hold != "" {
				held = append(held, d.Assignment.GetRole())
				if !strings.Contains(d.Hold, "cgroup-memory (no control groups), own-uid") {
					t.Errorf("%s: %s", name, d.Hold)
				}
			}
		}
		if got := strings.Join(held, " "); got != test.held {
			t.Errorf("%s: held back: %q, want %q", name, got, test.held)
		}
	}
	a, b := example(), example()
	if b.Policy = (&clusterv1.ClusterPolicy{Generation: 1}); a.equal(b) {
		t.Error("a policy is no change")
	}
}

func TestCollector(t *testing.T) {
	record := func(name, digest string) *clusterv1.PluginRecord {
		return &clusterv1.PluginRecord{Name: name, Digests: map[string]string{store.Platform: digest}}
	}
	now := time.Now()
	there := []string{"builtin", "app1", "unknown", "idle"}
	var view event.Value[*cluster.View]
	var instances event.Value[roles.Instances]
	c := Collector{
		Log: hclog.NewNullLogger(), Path: filepath.Join(t.TempDir(), "executables.json"), Instances: &instances, View: &view,
		Known: []*clusterv1.PluginRecord{record("builtin", "builtin")}, Genesis: true, Now: func() time.Time { return now },
		Collect: func(keep func(string) bool) (removed []string, err error) {
			there = slices.DeleteFunc(there, func(digest string) bool {
				if !keep(digest) {
					removed = append(removed, digest)
				}
				return slices.Contains(removed, digest)
			})
			return removed, nil
		},
	}
	step := func(what string, want ...string) {
		t.Helper()
		c.once()
		if !slices.Equal(there, want) {
			t.Errorf("%s: %v, want %v", what, there, want)
		}
	}
	step("at first", "builtin", "app1", "unknown", "idle")
	// The next cores know no more than the roles' plugins.
	c.Known, c.Genesis = nil, false
	view.Set(&cluster.View{Plugins: []*clusterv1.PluginRecord{record("app", "app1"), record("idle", "idle")}})
	step("with contact", "builtin", "app1", "unknown", "idle")
	second := record("app", "app2")
	second.Previous = &clusterv1.PluginVersion{Digests: map[string]string{store.Platform: "app1"}}
	second.Waiting = &clusterv1.PluginVersion{Digests: map[string]string{store.Platform: "app3"}}
	there = append(there, "app2", "app3")
	view.Set(&cluster.View{Plugins: []*clusterv1.PluginRecord{second}})
	now = now.Add(forgetAfter - time.Hour)
	step("an upgrade, and a role that is gone", "builtin", "app1", "unknown", "idle", "app2", "app3")
	third := record("app", "app3")
	third.Previous = &clusterv1.PluginVersion{Digests: map[string]string{store.Platform: "app2"}}
	view.Set(&cluster.View{Plugins: []*clusterv1.PluginRecord{third}})
	instances.Set(roles.Instances{{Status: &clusterv1.InstanceStatus{Role: "app", Plugin: "app", Digest: "app1"}}})
	step("the oldest still runs", "builtin", "app1", "unknown", "idle", "app2", "app3")
	instances.Set(nil)
	step("and then does not", "builtin", "unknown", "idle", "app2", "app3")
	now = now.Add(2 * time.Hour)
	step("after a month", "builtin", "app2", "app3")
	now = now.Add(-10 * forgetAfter)
	step("the clock is set back", "builtin", "app2", "app3")
}

func FuzzParseLedger(f *testing.F) {
	f.Add([]byte(`{"version":1,"uses":{"sha256:a":{"plugin":"p","seen":"2026-01-02T03:04:05Z","genesis":true}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if uses, err := parseLedger(content); (uses == nil) == (err == nil) {
			t.Fatalf("%v, %v", uses, err)
		}
	})
}
