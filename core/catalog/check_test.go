package catalog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/genesis"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
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
