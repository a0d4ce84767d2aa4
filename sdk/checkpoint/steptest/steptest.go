// Package steptest tests a plugin's list of steps for package checkpoint. Only tests import it.
package steptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// AllAreAll is for the test of a plugin's package internal/steps, whose file steps.go names the steps. It checks that every named step is in all and
// is used somewhere in the plugin, so that a test that stops the role at each of them covers the whole plugin. taken reports whether a step without a
// use in the sources is taken in another way; nil: none is.
func AllAreAll(t *testing.T, all []checkpoint.Step, taken func(checkpoint.Step) bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "steps.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]checkpoint.Step)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != len(spec.Names) {
			return true
		}
		for i, name := range spec.Names {
			if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				named[name.Name] = checkpoint.Step(text)
			}
		}
		return true
	})
	if len(named) == 0 || len(named) != len(all) {
		t.Errorf("%d steps have names, and All has %d", len(named), len(all))
	}
	taking := make(map[string]bool)
	use := regexp.MustCompile(`\bsteps\.(\w+)`)
	err = filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, found := range use.FindAllSubmatch(content, -1) {
			taking[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, step := range named {
		if !slices.Contains(all, step) {
			t.Errorf("%s is not one of All", name)
		}
		if !taking[name] && (taken == nil || !taken(step)) {
			t.Errorf("nobody takes the step %s", name)
		}
	}
	for n, step := range all {
		if slices.Index(all, step) != n || strings.Trim(string(step), "abcdefghijklmnopqrstuvwxyz-") != "" {
			t.Errorf("the name %q", step)
		}
	}
}
