package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/build"
)

// Lab is machines in a network of their own.
type Lab struct {
	directory string
	// hub is the machine in whose network namespace the bridge is.
	hub *Machine

	mu       sync.Mutex
	machines []*Machine
}

// New installs the programs for all machines of a lab, and switches the first one on, to whose network all others are connected. base is a directory that everybody can
// pass through. It needs root. The machines are switched off when the test ends; the test then sees the logs of those of a test that failed.
func New(t testing.TB, programs *build.Programs, base, name, address string) *Lab {
	t.Helper()
	directory, err := os.MkdirTemp(base, "lab")
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{directory: directory}
	t.Cleanup(func() { l.end(t) })
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	l.install(t, programs)
	tool := filepath.Join(l.shared(), "bin")
	if err := os.MkdirAll(tool, 0o755); err != nil {
		t.Fatal(err)
	}
	// The test's executable is mounted there.
	if err := os.WriteFile(filepath.Join(tool, filepath.Base(toolPath)), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for name := range tools {
		if err := os.Symlink(filepath.Base(toolPath), filepath.Join(tool, name)); err != nil {
			t.Fatal(err)
		}
	}
	l.hub = l.Machine(t, name, address)
	return l
}

// shared is what all machines have.
func (l *Lab) shared() string { return filepath.Join(l.directory, "lab") }

// local is /usr/local of all machines.
func (l *Lab) local() string { return filepath.Join(l.directory, "root", "usr", "local") }

// install puts the programs where `make install` does.
func (l *Lab) install(t testing.TB, programs *build.Programs) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "install", "BIN="+programs.Directory, "DESTDIR="+filepath.Join(l.directory, "root"), "PREFIX=/usr/local")
	command.Dir = programs.Workspace
	for _, variable := range os.Environ() {
		switch name, _, _ := strings.Cut(variable, "="); name {
		// Those of a make that runs the tests.
		case "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "DESTDIR", "PREFIX":
		default:
			command.Env = append(command.Env, variable)
		}
	}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, output)
	}
}

// end switches all machines off and removes what is left of them.
func (l *Lab) end(t testing.TB) {
	l.mu.Lock()
	machines := l.machines
	l.mu.Unlock()
	for _, machine := range machines {
		if t.Failed() {
			machine.showLogs(t)
		}
		machine.PowerOff(t)
	}
	if err := os.RemoveAll(l.directory); err != nil {
		t.Error(err)
	}
}

// ip runs ip(8) on the host.
func ip(t testing.TB, arguments ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "ip", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(arguments, " "), err, output)
	}
}

// Missing says what a host lacks for a lab; empty: nothing.
func Missing() string {
	if os.Geteuid() != 0 {
		return "machines of a lab need root"
	}
	for _, tool := range []string{"ip", "make", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("%s is not installed", tool)
		}
	}
	return ""
}
