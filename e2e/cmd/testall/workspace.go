package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// workspace is what go.work says.
type workspace struct {
	root string
	// modules are in the order in which they are tested.
	modules []module
}

// module is a module of the workspace.
type module struct {
	// name is its path within the workspace.
	name string
	dir  string
}

// last is the module whose tests use what all others are built to.
const last = "e2e"

func findWorkspace(ctx context.Context, dir string) (workspace, error) {
	text, err := run(ctx, dir, nil, "go", "env", "GOWORK")
	if err != nil {
		return workspace{}, err
	}
	file := strings.TrimSpace(text)
	if file == "" || file == "off" {
		return workspace{}, fmt.Errorf("%w above %s", errNoWorkspace, dir)
	}
	text, err = run(ctx, dir, nil, "go", "work", "edit", "-json", file)
	if err != nil {
		return workspace{}, err
	}
	var work struct {
		Use []struct{ DiskPath string }
	}
	if err := json.Unmarshal([]byte(text), &work); err != nil {
		return workspace{}, fmt.Errorf("%s: %w", file, err)
	}
	w := workspace{root: filepath.Dir(file)}
	weights := make(map[string]int)
	for _, use := range work.Use {
		name := filepath.ToSlash(filepath.Clean(use.DiskPath))
		m := module{name: name, dir: filepath.Join(w.root, name)}
		if _, err := os.Stat(filepath.Join(m.dir, "go.mod")); err != nil {
			return workspace{}, fmt.Errorf("module %s of %s: %w", name, file, err)
		}
		weights[name] = m.weight()
		w.modules = append(w.modules, m)
	}
	slices.SortStableFunc(w.modules, func(a, b module) int {
		if a.name == last || b.name == last {
			return boolInt(a.name == last) - boolInt(b.name == last)
		}
		return weights[a.name] - weights[b.name]
	})
	return w, nil
}

// weight grows with what the module has to build before its tests run: what fails fast is to fail first.
func (m module) weight() int {
	sums, err := os.ReadFile(filepath.Join(m.dir, "go.sum"))
	if err != nil {
		return 0
	}
	return bytes.Count(sums, []byte("\n"))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// check builds and vets the module outside the workspace, and compares the versions that it selects there.
func (m module) check(ctx context.Context) []error {
	off := []string{"GOWORK=off"}
	for _, arguments := range [][]string{{"build", "./..."}, {"vet", "./..."}} {
		if _, err := run(ctx, m.dir, off, "go", arguments...); err != nil {
			return []error{fmt.Errorf("with GOWORK=off: %w", err)}
		}
	}
	alone, err := m.versions(ctx, off)
	joined, joinedErr := m.versions(ctx, nil)
	if err := firstOf(err, joinedErr); err != nil {
		return []error{err}
	}
	var problems []error
	for path, version := range alone {
		if other, ok := joined[path]; ok && other != version {
			problems = append(problems, fmt.Errorf("it selects %s %s, and %s in the workspace: run `go work sync`, then `go mod tidy` in the module",
				path, version, other))
		}
	}
	return problems
}

// versions returns the modules from which the packages and tests of the module are built.
func (m module) versions(ctx context.Context, environment []string) (map[string]string, error) {
	text, err := run(ctx, m.dir, environment, "go", "list", "-test", "-deps",
		"-f", "{{with .Module}}{{if and .Version (not .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	versions := make(map[string]string)
	for line := range strings.Lines(text) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[path] = version
		}
	}
	return versions, nil
}

// run runs a program and returns its standard output; the error has what it wrote to its standard error.
func run(ctx context.Context, dir string, environment []string, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), environment...)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(arguments, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
