package install_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/unit"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) {
	if service := os.Getenv(confinedVariable); service != "" {
		fmt.Fprintln(os.Stderr, unit.Exec(service, os.Args[1:], nil))
		os.Exit(125)
	}
	leaktest.VerifyTestMain(m)
}

// workspace is the directory of the Makefile.
func workspace(t *testing.T) string {
	t.Helper()
	directory, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

// root makes a directory that every user can pass through, with a short path.
func root(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("/tmp", "ri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(directory, 0o711); err != nil {
		t.Fatal(err)
	}
	return directory
}

// making holds make's targets apart: they build into the same places.
var making sync.Mutex

// version is the one that is stamped on what the tests build.
const version = "v1.2.3-4-g0123abc"

// runMake runs make with variables of the test's own, and returns what it printed.
func runMake(t *testing.T, arguments ...string) string {
	t.Helper()
	making.Lock()
	defer making.Unlock()
	command := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "VERSION=" + version}, arguments...)...)
	command.Dir = workspace(t)
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		switch name {
		// Those of a make that runs the tests, and of tests that run outside of the workspace.
		case "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "DESTDIR", "PREFIX", "GOWORK":
		default:
			command.Env = append(command.Env, variable)
		}
	}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// run runs a command and returns what it printed.
func run(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return string(output)
}

// files returns every file below a directory, with its mode or where a link leads, by its path in it.
func files(t *testing.T, directory string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, directory)
		if info.Mode()&fs.ModeSymlink != 0 {
			found[name], err = os.Readlink(path)
			return err
		}
		found[name] = fmt.Sprintf("%04o", info.Mode().Perm())
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}

// installed is what `make install PREFIX=/usr` makes, but for the directory of zsh.
var installed = map[string]string{
	"/usr/bin/reeve":                                  "../lib/reeve/reeve",
	"/usr/sbin/reeved":                                "../lib/reeve/reeved",
	"/usr/lib/reeve/reeve":                            "0755",
	"/usr/lib/reeve/reeved":                           "0755",
	"/usr/lib/reeve/reeve-conformance":                "0755",
	"/usr/lib/reeve/plugins/archive":                  "0755",
	"/usr/lib/reeve/plugins/consensus":                "0755",
	"/usr/lib/reeve/plugins/curator":                  "0755",
	"/usr/lib/reeve/plugins/hostsfile":                "0755",
	"/usr/lib/reeve/plugins/genesis.json":             "0644",
	"/usr/lib/reeve/examples/lighthouse":              "0755",
	"/usr/lib/systemd/system/reeved.service":          "0644",
	"/usr/share/bash-completion/completions/reeve":    "0644",
	"/usr/share/fish/vendor_completions.d/reeve.fish": "0644",
	"/usr/share/doc/reeve/README.md":                  "0644",
	"/usr/share/doc/reeve/examples/privileged.conf":   "0644",
}
