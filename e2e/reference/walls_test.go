package reference_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// wall is a rule of depguard in .golangci.yml: which files may not import which packages.
type wall struct {
	Files []string
	Deny  []struct{ Pkg, Desc string }
}

// TestWalls holds the imports of every file to the rules of .golangci.yml, on machines without golangci-lint too.
func TestWalls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(workspace, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]wall }
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	rules := config.Linters.Settings.Depguard.Rules
	held := make(map[string]bool)
	err = filepath.WalkDir(workspace, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(workspace, path)
		if entry.IsDir() {
			if name == "bin" || name == "var" || entry.Name() == ".git" || entry.Name() == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		for rule, wall := range rules {
			for _, pattern := range wall.Files {
				within, ok := strings.CutSuffix(strings.TrimPrefix(pattern, "**"), "**")
				if !ok || strings.Contains(within, "*") {
					t.Fatalf("rule %s: this test knows only patterns such as **/core/**, not %s", rule, pattern)
				}
				if strings.Contains("/"+name, within) {
					held[rule] = true
					checkImports(t, path, name, wall)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for rule := range rules {
		if !held[rule] {
			t.Errorf("rule %s of .golangci.yml holds for no file", rule)
		}
	}
}

// checkImports reports every import of a file that a wall denies. As in depguard, a denied package stands for all whose paths begin so.
func checkImports(t *testing.T, path, name string, wall wall) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, deny := range wall.Deny {
			if strings.HasPrefix(imported, deny.Pkg) {
				t.Errorf("%s imports %s: %s", name, imported, deny.Desc)
			}
		}
	}
}
