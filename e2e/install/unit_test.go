package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/unit"
)

// confinedVariable has the test's executable run a command under the limits of a unit: it names the unit's file.
const confinedVariable = "REEVE_TEST_CONFINED_BY"

// exposure is the highest that `systemd-analyze security` may say of the unit, in tenths: without a mount namespace, the reason of which the unit
// states, much stays open that is the business of each role's sandbox.
const exposure = 74

func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit is not checked")
	}
	place := root(t)
	// The executable that the unit names has to be there.
	program := filepath.Join(place, "reeved")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(workspace(t), "packaging", "systemd", "reeved.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(place, "reeved.service")
	filled := strings.NewReplacer("@LIBDIR@", place, "@DOCDIR@", place).Replace(string(text))
	if strings.Contains(filled, "DIR@") {
		t.Error("a place in the unit is not filled in")
	}
	if err := os.WriteFile(unit, []byte(filled), 0o644); err != nil {
		t.Fatal(err)
	}
	privileged, err := os.ReadFile(filepath.Join(workspace(t), "packaging", "systemd", "privileged.conf"))
	if err != nil {
		t.Fatal(err)
	}
	verify := func(t *testing.T) {
		t.Helper()
		for line := range strings.Lines(run(t, exec.Command(analyze, "verify", "--man=no", unit))) {
			// systemd before 254 does not know it and goes on without.
			if !strings.Contains(line, "Unknown key 'DelegateSubgroup'") {
				t.Errorf("systemd-analyze verify says: %s", line)
			}
		}
	}
	verify(t)
	threshold := "--threshold=" + strconv.Itoa(exposure)
	if said, err := exec.Command(analyze, "security", "--offline=true", threshold, unit).CombinedOutput(); err != nil {
		t.Errorf("the unit is too open: %v\n%s", err, said)
	}
	// With the drop-in nothing is denied that a privileged role may need.
	if err := os.WriteFile(unit, []byte(filled+"\n"+string(privileged)), 0o644); err != nil {
		t.Fatal(err)
	}
	verify(t)
	if exec.Command(analyze, "security", "--offline=true", "--threshold=90", unit).Run() == nil {
		t.Error("the drop-in for privileged roles leaves something denied")
	}
}

// What the unit must not have, each with what it would break.
func TestUnitKeepsRoles(t *testing.T) {
	file := filepath.Join(workspace(t), "packaging", "systemd", "reeved.service")
	for name, want := range map[string][]string{
		"KillMode":                 {"process"}, // others end the roles with the core
		"RuntimeDirectoryPreserve": {"yes"},     // the sockets of roles that outlive a core
		"OOMPolicy":                {"continue"},
		"Delegate":                 {"yes"},
		"DelegateSubgroup":         {"core"}, // or a core that is started again finds no place beside its roles (cgroup v2)
		"Restart":                  {"always"},
		"RestrictSUIDSGID":         nil, // directories of the store's sockets have the setgid bit
		"RestrictNamespaces":       nil, // the sandbox makes user namespaces
		"MemoryDenyWriteExecute":   nil, // roles in other languages compile while they run
		"ProtectHostname":          nil, // a role may be granted to set the host's name
		// A mount namespace of each core's own, in which the roles of the one before would not be:
		"ProtectSystem": nil, "ProtectHome": nil, "PrivateTmp": nil, "PrivateDevices": nil, "PrivateMounts": nil, "ProtectProc": nil,
		"ProtectKernelTunables": nil, "ProtectKernelModules": nil, "ProtectKernelLogs": nil, "ProtectControlGroups": nil, "ReadWritePaths": nil,
		"ReadOnlyPaths": nil, "InaccessiblePaths": nil, "TemporaryFileSystem": nil, "BindPaths": nil, "RootDirectory": nil, "DynamicUser": nil,
	} {
		got, err := unit.Settings(file, name)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q; error %v", name, got, want, err)
		}
	}
	if _, err := unit.DeniedCapabilities(file); err != nil {
		t.Error(err)
	}
}
