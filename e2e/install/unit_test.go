package install_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// confinedVariable has the test's executable run a command under the limits of a unit: it names the unit's file.
const confinedVariable = "REEVE_TEST_CONFINED_BY"

// capabilities are the numbers of those that the unit takes away.
var capabilities = map[string]uintptr{
	"CAP_AUDIT_CONTROL": unix.CAP_AUDIT_CONTROL, "CAP_AUDIT_READ": unix.CAP_AUDIT_READ, "CAP_BLOCK_SUSPEND": unix.CAP_BLOCK_SUSPEND,
	"CAP_LEASE": unix.CAP_LEASE, "CAP_LINUX_IMMUTABLE": unix.CAP_LINUX_IMMUTABLE, "CAP_MAC_ADMIN": unix.CAP_MAC_ADMIN,
	"CAP_MAC_OVERRIDE": unix.CAP_MAC_OVERRIDE, "CAP_NET_BROADCAST": unix.CAP_NET_BROADCAST, "CAP_NET_RAW": unix.CAP_NET_RAW,
	"CAP_SYS_BOOT": unix.CAP_SYS_BOOT, "CAP_SYS_MODULE": unix.CAP_SYS_MODULE, "CAP_SYS_PACCT": unix.CAP_SYS_PACCT,
	"CAP_SYS_RAWIO": unix.CAP_SYS_RAWIO, "CAP_SYS_TIME": unix.CAP_SYS_TIME, "CAP_SYS_TTY_CONFIG": unix.CAP_SYS_TTY_CONFIG,
	"CAP_SYSLOG": unix.CAP_SYSLOG, "CAP_WAKE_ALARM": unix.CAP_WAKE_ALARM,
}

// settings returns the values of a unit's setting, in order.
func settings(unit, name string) ([]string, error) {
	file, err := os.Open(unit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var values []string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if value, ok := strings.CutPrefix(scanner.Text(), name+"="); ok {
			values = append(values, value)
		}
	}
	return values, scanner.Err()
}

// runConfined executes a command as a service manager would that reads these settings of the unit: UMask, LimitCORE, NoNewPrivileges,
// CapabilityBoundingSet. It returns only if that fails.
func runConfined(unit string, arguments []string) error {
	// What follows is of the thread that then executes.
	runtime.LockOSThread()
	masks, err := settings(unit, "UMask")
	if err != nil || len(masks) != 1 {
		return fmt.Errorf("UMask is set %d times: %w", len(masks), err)
	}
	mask, err := strconv.ParseUint(masks[0], 8, 32)
	if err != nil {
		return err
	}
	syscall.Umask(int(mask))
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		denied, err := deniedCapabilities(unit)
		if err != nil {
			return err
		}
		for _, capability := range denied {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
				return err
			}
		}
	}
	if values, err := settings(unit, "NoNewPrivileges"); err != nil || !slices.Equal(values, []string{"yes"}) {
		return fmt.Errorf("NoNewPrivileges is %q: %w", values, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return syscall.Exec(arguments[0], arguments, nil)
}

func deniedCapabilities(unit string) ([]uintptr, error) {
	lines, err := settings(unit, "CapabilityBoundingSet")
	if err != nil {
		return nil, err
	}
	var denied []uintptr
	for _, line := range lines {
		names, ok := strings.CutPrefix(line, "~")
		if !ok {
			return nil, fmt.Errorf("CapabilityBoundingSet=%s is no list of what is denied", line)
		}
		for _, name := range strings.Fields(names) {
			number, ok := capabilities[name]
			if !ok {
				return nil, fmt.Errorf("CapabilityBoundingSet names %s, which this test does not know", name)
			}
			denied = append(denied, number)
		}
	}
	if len(denied) == 0 {
		return nil, errors.New("CapabilityBoundingSet denies nothing")
	}
	return denied, nil
}

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
	unit := filepath.Join(workspace(t), "packaging", "systemd", "reeved.service")
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
		got, err := settings(unit, name)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q; error %v", name, got, want, err)
		}
	}
	if _, err := deniedCapabilities(unit); err != nil {
		t.Error(err)
	}
}
