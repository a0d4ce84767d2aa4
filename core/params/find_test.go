package params_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/params"
)

// places are the places of a machine of the test's own.
func places(t *testing.T) params.Places {
	t.Helper()
	dir := t.TempDir()
	return params.Places{CommandLine: filepath.Join(dir, "p.yaml"), Firmware: filepath.Join(dir, "by_name", "opt", "raw"), System: filepath.Join(dir, "system")}
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestFindTakesTheFirst(t *testing.T) {
	p := places(t)
	inSystem := func(name string) string { return filepath.Join(p.System, name) }
	asJSON, err := protojson.Marshal(parsed(t, good))
	if err != nil {
		t.Fatal(err)
	}
	// From the last to the first: each that is put there takes the place of the one before, in every format.
	var there []string
	for _, step := range []struct {
		path    string
		content []byte
	}{
		{inSystem("parameters.pb"), binary(t, parsed(t, good))},
		{inSystem("parameters.json"), asJSON},
		{inSystem("parameters.yaml"), []byte(good)},
		{p.Firmware, asJSON},
		{p.CommandLine, binary(t, parsed(t, good))},
	} {
		put(t, step.path, step.content)
		from := p
		if step.path != p.CommandLine {
			from.CommandLine = ""
		}
		found, err := from.Find()
		if err != nil {
			t.Fatal(err)
		}
		if found.File != step.path || found.Parameters.GetVersion() != params.Version {
			t.Errorf("from %s, want %s", found.File, step.path)
		}
		if !slices.Equal(found.Others, there) {
			t.Errorf("with %s the others are %q, want %q", step.path, found.Others, there)
		}
		there = slices.Insert(there, 0, step.path)
	}
}

// What is there and of no use is an error by its name, though later sources are good.
func TestFindPassesNothingOver(t *testing.T) {
	for name, spoil := range inorder.Of(map[string]func(t *testing.T, path string){
		"nonsense":   func(t *testing.T, path string) { put(t, path, []byte("nonsense")) },
		"empty":      func(t *testing.T, path string) { put(t, path, nil) },
		"cut off":    func(t *testing.T, path string) { put(t, path, binary(t, parsed(t, good))[:99]) },
		"directory":  func(t *testing.T, path string) { put(t, filepath.Join(path, "x"), nil) },
		"dead link":  func(t *testing.T, path string) { link(t, filepath.Join(filepath.Dir(path), "nowhere"), path) },
		"round link": func(t *testing.T, path string) { link(t, path, path) },
	}) {
		for i := range len(places(t).Files()) - 1 {
			t.Run(name, func(t *testing.T) {
				p := places(t)
				if i > 0 {
					p.CommandLine = ""
				}
				first := p.Files()[max(0, i-1)]
				put(t, filepath.Join(p.System, "parameters.pb"), binary(t, parsed(t, good)))
				spoil(t, first)
				_, err := p.Find()
				var problem *params.Error
				if !errors.As(err, &problem) || problem.File != first || !strings.Contains(err.Error(), first) {
					t.Errorf("with %s spoilt: %v", first, err)
				}
			})
		}
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(to, path)); err != nil {
		t.Fatal(err)
	}
}

// A file in the way of a directory: whether there are parameters behind it cannot be known.
func TestFindThatCannotLook(t *testing.T) {
	p := places(t)
	p.CommandLine = ""
	put(t, filepath.Dir(p.Firmware), nil)
	put(t, filepath.Join(p.System, "parameters.yaml"), []byte(good))
	_, err := p.Find()
	var problem *params.Error
	if !errors.As(err, &problem) || problem.File != p.Firmware {
		t.Errorf("error %v", err)
	}
}

func TestFindNothing(t *testing.T) {
	p := places(t)
	_, err := p.Find()
	var problem *params.Error
	if !errors.As(err, &problem) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), p.CommandLine) {
		t.Errorf("the file that the command line names is missing: %v", err)
	}
	p.CommandLine = ""
	_, err = p.Find()
	var none *params.NoneError
	if !errors.As(err, &none) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{p.Firmware, filepath.Join(p.System, "parameters.yaml"), "parameters.json", "parameters.pb", "reeve init", "--parameters"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not speak of %q:\n%v", want, err)
		}
	}
}

func TestFindAHugeFile(t *testing.T) {
	p := places(t)
	put(t, p.CommandLine, []byte(strings.Repeat("#", 2<<20)))
	if _, err := p.Find(); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a huge file: %v", err)
	}
}
