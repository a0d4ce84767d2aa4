package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/build"
)

// ours is what the import paths of Reeve begin with.
const ours = "github.com/reeveproject/reeve/"

// walls says for each module which other modules of Reeve its packages may pull in. A module that is in the workspace and not here fails the
// test.
var walls = map[string][]string{
	"proto":               {},
	"sdk":                 {"proto"},
	"sdk/conformance":     {"proto", "sdk"},
	"sdk/consensus":       {"proto", "sdk"},
	"core":                {"proto", "sdk"},
	"plugins/archive":     {"proto", "sdk"},
	"plugins/consensus":   {"proto", "sdk"},
	"plugins/curator":     {"proto", "sdk", "sdk/consensus"},
	"plugins/hostsfile":   {"proto", "sdk"},
	"plugins/kubernetes":  {"proto", "sdk", "sdk/consensus"},
	"cli":                 {"proto"},
	"examples/lighthouse": {"proto", "sdk", "sdk/consensus"},
	"e2e":                 {"proto"},
}

// opened are the packages that the tests of a module pull in of another, by its owner: what is in a sealed file is only seen by who can open it. Of e2e, which is
// tests and what they share, every package may.
var opened = map[string][]string{
	"e2e": {ours + "core/seal", ours + "core/keys", ours + "core/storage", ours + "core/checkpoint", ours + "core/usertest", ours + "sdk/leaktest"},
}

// event is what any module may use: a container of values, without anything that e2e is to see from outside.
const event = ours + "sdk/event"

// bench is the part of e2e that measures single rooms, and so pulls them in.
const bench = ours + "e2e/bench"

// light says what programs and libraries must not pull in: an author of a role who does not use the store gets no etcd, and nothing but
// consensus gets its server.
var light = []struct {
	module, packages string
	without          []string
}{
	{"proto", "./...", []string{"go.etcd.io/"}},
	{"sdk", "./...", []string{"go.etcd.io/"}},
	{"sdk/conformance", ".", []string{"go.etcd.io/"}},
	{"sdk/consensus", ".", []string{"go.etcd.io/etcd/server/"}},
	{"core", "./cmd/reeved", []string{"go.etcd.io/"}},
	{"plugins/archive", ".", []string{"go.etcd.io/", "github.com/aws/", "github.com/johannesboyne/"}},
	{"plugins/curator", ".", []string{"go.etcd.io/etcd/server/"}},
	{"plugins/hostsfile", ".", []string{"go.etcd.io/"}},
	{"plugins/kubernetes", "./internal/plugin", []string{"k8s.io/", "go.etcd.io/etcd/server/"}},
	{"plugins/kubernetes", "./internal/image", []string{"k8s.io/", "go.etcd.io/"}},
	{"plugins/kubernetes", "./cmd/parts", []string{"k8s.io/", "go.etcd.io/"}},
	{"plugins/kubernetes", "./internal/podnet", []string{"k8s.io/", "go.etcd.io/"}},
	{"plugins/kubernetes", "./internal/machine", []string{"k8s.io/", "go.etcd.io/"}},
	{"examples/lighthouse", ".", []string{"go.etcd.io/etcd/server/"}},
	{"cli", "./cmd/reeve", []string{"go.etcd.io/", "github.com/hashicorp/go-plugin", "github.com/santhosh-tekuri/jsonschema"}},
}

// modules returns the directories of the workspace's modules.
func modules(t *testing.T) []string {
	t.Helper()
	workspace := suite.programs.Workspace
	list, err := build.Output(t.Context(), workspace, []string{"GOWORK=" + filepath.Join(workspace, "go.work")}, "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for directory := range strings.FieldsSeq(list) {
		relative, err := filepath.Rel(workspace, directory)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, relative)
	}
	return found
}

// moduleOf returns which of our modules a package belongs to: the one with the longest name that fits.
func moduleOf(modules []string, path string) string {
	best := ""
	for _, module := range modules {
		if (path == ours+module || strings.HasPrefix(path, ours+module+"/")) && len(module) > len(best) {
			best = module
		}
	}
	return best
}

// withoutBench returns the packages of a module that do not belong to the measurements, and are no roles: those are written as an author would, by the SDK.
func withoutBench(t *testing.T, directory string) []string {
	t.Helper()
	list, err := build.Output(t.Context(), directory, []string{"GOWORK=off"}, "list", "./...")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(list), func(path string) bool {
		return strings.HasPrefix(path, bench) || path == ours+"e2e/cmd/bench" || strings.HasPrefix(path, ours+"e2e/nodes/programs/")
	})
}

// TestWalls checks who pulls in whom, tests included, with each module by itself.
func TestWalls(t *testing.T) {
	t.Parallel()
	all := modules(t)
	for module := range walls {
		if !slices.Contains(all, module) {
			t.Errorf("the module %s is not in the workspace", module)
		}
	}
	for _, module := range all {
		allowed, known := walls[module]
		if !known {
			t.Errorf("the test has no rule for the module %s", module)
			continue
		}
		directory := filepath.Join(suite.programs.Workspace, module)
		packages := []string{"./..."}
		if module == "e2e" {
			packages = withoutBench(t, directory)
		}
		for _, tests := range []bool{false, true} {
			arguments := []string{"list", "-deps", "-f", "{{.ImportPath}}"}
			if tests {
				arguments = append(arguments, "-test")
			}
			list, err := build.Output(t.Context(), directory, []string{"GOWORK=off"}, append(arguments, packages...)...)
			if err != nil {
				t.Errorf("%s by itself: %v", module, err)
				continue
			}
			for line := range strings.Lines(list) {
				path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				path = strings.TrimSuffix(path, ".test")
				if path == event || (tests || module == "e2e") && slices.Contains(opened[module], path) {
					continue
				}
				if owner := moduleOf(all, path); owner != "" && owner != module && !slices.Contains(allowed, owner) {
					t.Errorf("%s pulls in %s of %s (tests: %t)", module, path, owner, tests)
				}
			}
		}
	}
}

// TestLightPrograms checks that nobody carries what is not theirs.
func TestLightPrograms(t *testing.T) {
	t.Parallel()
	for _, test := range light {
		directory := filepath.Join(suite.programs.Workspace, test.module)
		list, err := build.Output(t.Context(), directory, []string{"GOWORK=off"}, "list", "-deps", test.packages)
		if err != nil {
			t.Error(err)
			continue
		}
		for path := range strings.FieldsSeq(list) {
			for _, prefix := range test.without {
				if strings.HasPrefix(path, prefix) {
					t.Errorf("%s in %s pulls in %s", test.packages, test.module, path)
				}
			}
		}
	}
}

// TestExampleImportsOnlyTheSDK looks at what the example's own packages import.
func TestExampleImportsOnlyTheSDK(t *testing.T) {
	t.Parallel()
	list, err := build.Output(t.Context(), filepath.Join(suite.programs.Workspace, "examples", "lighthouse"), []string{"GOWORK=off"},
		"list", "-f", `{{join .Imports "\n"}}`, "./...")
	if err != nil {
		t.Fatal(err)
	}
	sdk := 0
	for path := range strings.FieldsSeq(list) {
		if !strings.HasPrefix(path, ours) || strings.HasPrefix(path, ours+"examples/lighthouse") {
			continue
		}
		if !strings.HasPrefix(path, ours+"sdk") {
			t.Errorf("the example imports %s, and is to import nothing of Reeve but the SDK", path)
		}
		sdk++
	}
	if sdk == 0 {
		t.Error("the example does not even import the SDK")
	}
}
