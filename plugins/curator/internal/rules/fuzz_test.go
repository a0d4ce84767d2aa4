package rules_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Whatever somebody wants in the catalog, it is checked without harm, and what is let through is checked against the catalog without harm too.
func FuzzPlugin(f *testing.F) {
	seed := &clusterv1.PluginRecord{
		Name: "lamp", Version: "1.0.0", Digests: map[string]string{"linux/amd64": "sha256:" + strings.Repeat("0", 64)},
		Manifest: &rolev1.Manifest{Name: "lamp", Version: "1.0.0", Protocols: []string{"reeve.role.v1"}, Roles: []*rolev1.RoleManifest{{
			Name: "lamp", ConsensusUser: "lamp", Requires: []string{"reeve.consensus.v1"}, Provides: []string{"example.light.v1"},
			ConfigurationSchema: `{"type":"object"}`, Grants: []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{"path": "/etc/hosts"}}},
		}}},
		Grants: []*clusterv1.RoleGrants{{Role: "lamp", ConsensusUser: "lamp"}},
	}
	encoded, err := proto.Marshal(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded)
	f.Add([]byte{})
	other := proto.CloneOf(seed)
	other.Name, other.Waiting, other.Previous = "candle", &clusterv1.PluginVersion{Manifest: seed.Manifest}, &clusterv1.PluginVersion{}
	catalog := []*clusterv1.PluginRecord{seed, other}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		plugin := &clusterv1.PluginRecord{}
		if err := proto.Unmarshal(encoded, plugin); err != nil {
			t.Skip()
		}
		problems := rules.Plugin("plugin", plugin)
		for _, problem := range problems {
			if problem.Field == "" || problem.Message == "" {
				t.Errorf("problem %+v", problem)
			}
		}
		if len(problems) == 0 {
			rules.Conflicts(catalog, plugin.GetManifest())
			rules.Usurpations(catalog, plugin.GetManifest())
			rules.WithheldOf(plugin)
		}
	})
}
