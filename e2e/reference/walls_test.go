package reference_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	for path, name := range goFiles(t) {
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
	}
	for rule := range rules {
		if !held[rule] {
			t.Errorf("rule %s of .golangci.yml holds for no file", rule)
		}
	}
}

// goFiles returns the Go files of the workspace: their names in it, by their paths.
func goFiles(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(workspace, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(workspace, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == "bin" || name == "var" || entry.Name() == ".git" || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !entry.IsDir() && filepath.Ext(name) == ".go" {
			files[path] = name
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDraftsAreBesideTheirFiles holds that every file that is replaced atomically has its draft in its own directory. Without being told a directory renameio takes the one for
// temporary files if it is on the same file system: a process that is killed then leaves a private key, or a whole database, where nobody looks for it.
func TestDraftsAreBesideTheirFiles(t *testing.T) {
	writes := 0
	for path, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || !isRenameio(call, "WriteFile", "NewPendingFile", "TempFile") {
				return true
			}
			writes++
			if !slices.ContainsFunc(call.Args, func(argument ast.Expr) bool {
				option, ok := argument.(*ast.CallExpr)
				return ok && isRenameio(option, "WithTempDir")
			}) {
				t.Errorf("%s replaces a file without renameio.WithTempDir", name)
			}
			return true
		})
	}
	if writes == 0 {
		t.Error("no file is replaced: the test looks for the wrong functions")
	}
}

// isRenameio says whether a call is one of these functions of renameio.
func isRenameio(call *ast.CallExpr, functions ...string) bool {
	selected, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := selected.X.(*ast.Ident)
	return ok && of.Name == "renameio" && slices.Contains(functions, selected.Sel.Name)
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
