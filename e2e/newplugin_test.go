package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pages "github.com/reeveproject/reeve/e2e/internal/page"
	"github.com/reeveproject/reeve/e2e/internal/terminal"
)

// TestPluginNew has `reeve plugin new` write plugins, outside of the checkout, and does with each all that its README says, word for word: it builds, passes its tests, conforms
// and runs on a node as it was written.
func TestPluginNew(t *testing.T) {
	t.Parallel()
	table := map[string]string{"greeter": "", "roll-keeper": " --store --module git.example.net/harbour/roll-keeper"}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		flags := table[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			module := filepath.Join(c.Home, name)
			c.Directory = filepath.Join(module, "dev")
			// The executables of this run lie elsewhere than those that make has built last.
			shell := terminal.New(t, c.Home, "REEVE="+filepath.Dir(suite.programs.Directory), "XDG_CONFIG_HOME="+filepath.Join(c.Home, "config"))
			shell.Path = suite.programs.Directory + ":" + shell.Path
			must := func(line string) terminal.Result {
				t.Helper()
				result := shell.Run(t, line)
				if result.Code != 0 {
					t.Fatal(result)
				}
				return result
			}
			must("reeve plugin new " + name + " --reeve " + suite.programs.Workspace + flags)
			must("cd " + name)
			readme, err := os.ReadFile(filepath.Join(module, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			parts, err := pages.Parse(string(readme))
			if err != nil {
				t.Fatal(err)
			}
			said := make(map[string]string)
			for _, part := range parts {
				// The suite on a role with a store takes most of a minute, which the tutorial's test takes already.
				if part.Text == "make conformance" && flags != "" {
					continue
				}
				said[part.Text] = must(part.Text).Output
			}
			for command, text := range map[string]string{
				"make test": "ok", "make conformance": "profile core: conforms", "reeve describe role self " + name + " --dir ./dev": "Ready", "reeve dev down --dir ./dev": "Stopped",
			} {
				if output, ran := said[command]; ran && !strings.Contains(output, text) || !ran && (command != "make conformance" || flags == "") {
					t.Errorf("%s, which was run: %t, does not say %q:\n%s", command, ran, text, output)
				}
			}
			short(t, module, flags != "")
		})
	}
}

// short checks how much an author has to read: the role, and its test.
func short(t *testing.T, module string, store bool) {
	t.Helper()
	most := map[string]int{"main.go": 30, "role_test.go": 28, "conformance_test.go": 25}
	if store {
		most["main.go"], most["role_test.go"] = 75, 36
	}
	for name, most := range most {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > most {
			t.Errorf("%s has %d lines, want at most %d", name, lines, most)
		}
		if _, test, ok := strings.Cut(string(text), "(t *testing.T) {\n"); ok && name == "role_test.go" {
			if test, _, _ = strings.Cut(test, "\n}\n"); strings.Count(test, "\n")+1 > 15 {
				t.Errorf("the test has more than 15 lines:\n%s", test)
			}
		}
	}
}
