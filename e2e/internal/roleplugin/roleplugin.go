// Package roleplugin makes plugins as a third party would: in a module of their own, outside of the workspace, with nothing of Reeve but the
// SDK. Their sources are in testdata.
package roleplugin

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/e2e/internal/build"
)

//go:embed testdata
var sources embed.FS

// Build writes the module of a plugin into a new directory below directory, builds it there and returns the executable. variables are set
// by the linker in package main.
func Build(ctx context.Context, workspace, directory, source string, variables map[string]string) (string, error) {
	module, err := os.MkdirTemp(directory, source+"-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(module, 0o755); err != nil {
		return "", err
	}
	if err := write(workspace, module, source); err != nil {
		return "", fmt.Errorf("write the module of %s: %w", source, err)
	}
	// Without what only debuggers need, a plugin is linked, imported and hashed sooner.
	arguments := append(buildArguments(), "-o", source, "-ldflags", "-s -w "+linkerFlags(variables))
	return filepath.Join(module, source), outside(ctx, module, append(arguments, ".")...)
}

func buildArguments() []string { return append([]string{"build"}, build.Flags...) }

func linkerFlags(variables map[string]string) string {
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		flags = append(flags, fmt.Sprintf("-X 'main.%s=%s'", name, variables[name]))
	}
	return strings.Join(flags, " ")
}

// outside runs the go command in a module that is not part of a workspace.
func outside(ctx context.Context, directory string, arguments ...string) error {
	return build.Go(ctx, directory, []string{"GOWORK=off"}, arguments...)
}

// write writes the sources and a go.mod: that of the example, which needs all that a role may need, under another name and with the SDK
// where it really is.
func write(workspace, module, source string) error {
	files, err := fs.Sub(sources, "testdata/"+source)
	if err != nil {
		return err
	}
	if err := os.CopyFS(module, files); err != nil {
		return err
	}
	example := filepath.Join(workspace, "examples", "lighthouse")
	content, err := os.ReadFile(filepath.Join(example, "go.mod"))
	if err != nil {
		return err
	}
	text := strings.Replace(string(content), "module github.com/reeveproject/reeve/examples/lighthouse", "module example.com/"+source, 1)
	text = strings.ReplaceAll(text, "=> ../../", "=> "+workspace+"/")
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte(text), 0o644); err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(example, "go.sum"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(module, "go.sum"), sum, 0o644)
}

// BuildExample builds the example lighthouse in a directory that holds copies of the example, the SDK and the protocol and of nothing else.
// It returns the executable. changes are texts in its sources, and what takes their places.
func BuildExample(ctx context.Context, workspace, directory string, changes map[string]string) (string, error) {
	copies, err := os.MkdirTemp(directory, "copies-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(copies, 0o755); err != nil {
		return "", err
	}
	for _, part := range []string{"examples/lighthouse", "sdk", "proto"} {
		if err := os.CopyFS(filepath.Join(copies, part), os.DirFS(filepath.Join(workspace, part))); err != nil {
			return "", err
		}
	}
	module := filepath.Join(copies, "examples", "lighthouse")
	source := filepath.Join(module, "main.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	for _, from := range slices.Sorted(maps.Keys(changes)) {
		if !strings.Contains(string(text), from) {
			return "", fmt.Errorf("%s has no %q", source, from)
		}
		text = []byte(strings.ReplaceAll(string(text), from, changes[from]))
	}
	if err := os.WriteFile(source, text, 0o644); err != nil {
		return "", err
	}
	executable := filepath.Join(copies, "lighthouse")
	return executable, outside(ctx, module, append(buildArguments(), "-o", executable, ".")...)
}
