package catalog_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/genesis"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func TestBuiltinPluginsAreCheckedBeforeTheStart(t *testing.T) {
	dir := t.TempDir()
	plugin := filepath.Join(dir, "plugin")
	if err := os.WriteFile(plugin, []byte("#!/bin/true"), 0o755); err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(dir, genesis.FileName)
	if err := os.WriteFile(known, []byte(`{"version":"`+genesis.Version+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	// A catalog that knows it, with a role whose configuration has a schema.
	content, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	described := filepath.Join(dir, "described.json")
	if err := genesis.Write(described, &nodev1.Genesis{Version: genesis.Version, Plugins: []*clusterv1.PluginRecord{{
		Name: "band", Version: "1.0.0", Digests: map[string]string{store.Platform: fmt.Sprintf("sha256:%x", sha256.Sum256(content))},
		Manifest: &rolev1.Manifest{Name: "band", Version: "1.0.0", Protocols: []string{store.RoleProtocol}, Roles: []*rolev1.RoleManifest{
			{Name: "keeper", Provides: []string{roles.CapabilityConsensus}},
			{Name: "api", Provides: []string{roles.CapabilityCluster}, ConfigurationSchema: `{"properties": {"hostname": {"pattern": "[a-z]"}}}`},
		}},
	}}}); err != nil {
		t.Fatal(err)
	}
	with := func(parameters *nodev1.Parameters, roles ...*nodev1.BootstrapRole) *nodev1.Parameters {
		parameters.Cluster = &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{Roles: roles}}
		return parameters
	}
	joins := func(parameters *nodev1.Parameters, roles ...*nodev1.BootstrapRole) *nodev1.Parameters {
		parameters.Cluster = &nodev1.Parameters_Register{Register: &nodev1.Register{Roles: roles}}
		return parameters
	}
	keeper, right, wrong := &nodev1.BootstrapRole{Role: "keeper"}, &nodev1.BootstrapRole{Role: "api", Configuration: `{"hostname": "a"}`},
		&nodev1.BootstrapRole{Role: "api", Configuration: `{"hostname": "10"}`}
	of := func(catalog string, paths ...string) *nodev1.Parameters {
		parameters := &nodev1.Parameters{Genesis: catalog}
		for _, path := range paths {
			parameters.Plugins = append(parameters.Plugins, &nodev1.BuiltinPlugin{Path: path})
		}
		return parameters
	}
	for name, test := range map[string]struct {
		parameters *nodev1.Parameters
		says       []string
	}{
		"nothing is known of it":           {of("", plugin), nil},
		"files that are not there":         {of("", filepath.Join(dir, "a"), plugin, filepath.Join(dir, "b")), []string{"/a (plugins[].path in the parameters)", "/b (plugins[].path"}},
		"a catalog that is not there":      {of(filepath.Join(dir, "none"), plugin), []string{"genesis in the parameters"}},
		"one that the catalog knows not":   {of(known, plugin), []string{"the file was changed after it was built"}},
		"a directory in place of a plugin": {of("", dir), []string{"is a directory"}},
		"configurations that fit":          {with(of(described, plugin), keeper, right), nil},
		"one that does not fit":            {with(of(described, plugin), keeper, wrong), []string{"bootstrap.roles[1].configuration/hostname in the parameters does not fit the role api: it does not match the pattern"}},
		"one of a role that nobody knows":  {with(of("", plugin), keeper, wrong), nil},
		"no object": {
			with(of("", plugin), &nodev1.BootstrapRole{Role: "api", Configuration: "10"}), []string{"bootstrap.roles[0].configuration in the parameters does not fit the role api: the configuration is not a JSON object"},
		},
		"another cluster's schema may differ": {joins(of(described, plugin), wrong), nil},
		"roles that are missing": {
			with(of(described, plugin), right, &nodev1.BootstrapRole{Role: "drums"}), []string{`names a role "drums"`, "provides reeve.consensus"},
		},
	} {
		_, problems := catalog.Expect(test.parameters)
		if len(problems) != len(test.says) {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		for i, says := range test.says {
			if !strings.Contains(problems[i].Error(), says) {
				t.Errorf("%s: %v, want %q", name, problems[i], says)
			}
		}
	}
}
