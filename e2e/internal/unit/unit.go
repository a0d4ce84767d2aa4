// Package unit reads what the unit of the service says, and runs a command as a service manager would that keeps to it, as far as a machine without one can.
package unit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// capabilities are the numbers of those that the unit takes away.
var capabilities = map[string]uintptr{
	"CAP_AUDIT_CONTROL": unix.CAP_AUDIT_CONTROL, "CAP_AUDIT_READ": unix.CAP_AUDIT_READ, "CAP_BLOCK_SUSPEND": unix.CAP_BLOCK_SUSPEND,
	"CAP_LEASE": unix.CAP_LEASE, "CAP_LINUX_IMMUTABLE": unix.CAP_LINUX_IMMUTABLE, "CAP_MAC_ADMIN": unix.CAP_MAC_ADMIN,
	"CAP_MAC_OVERRIDE": unix.CAP_MAC_OVERRIDE, "CAP_NET_BROADCAST": unix.CAP_NET_BROADCAST, "CAP_NET_RAW": unix.CAP_NET_RAW,
	"CAP_SYS_BOOT": unix.CAP_SYS_BOOT, "CAP_SYS_MODULE": unix.CAP_SYS_MODULE, "CAP_SYS_PACCT": unix.CAP_SYS_PACCT,
	"CAP_SYS_RAWIO": unix.CAP_SYS_RAWIO, "CAP_SYS_TIME": unix.CAP_SYS_TIME, "CAP_SYS_TTY_CONFIG": unix.CAP_SYS_TTY_CONFIG,
	"CAP_SYSLOG": unix.CAP_SYSLOG, "CAP_WAKE_ALARM": unix.CAP_WAKE_ALARM,
}

// Settings returns the values of a unit's setting, in order.
func Settings(file, name string) ([]string, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }()
	var values []string
	scanner := bufio.NewScanner(opened)
	for scanner.Scan() {
		if value, ok := strings.CutPrefix(scanner.Text(), name+"="); ok {
			values = append(values, value)
		}
	}
	return values, scanner.Err()
}

// Exec puts a command in the place of this process, as a service manager would that reads these settings of the unit: UMask, LimitCORE, NoNewPrivileges,
// CapabilityBoundingSet. It returns only if that fails.
func Exec(file string, arguments, environment []string) error {
	// What follows is of the thread that then executes.
	runtime.LockOSThread()
	masks, err := Settings(file, "UMask")
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
		denied, err := DeniedCapabilities(file)
		if err != nil {
			return err
		}
		for _, capability := range denied {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
				return err
			}
		}
	}
	if values, err := Settings(file, "NoNewPrivileges"); err != nil || !slices.Equal(values, []string{"yes"}) {
		return fmt.Errorf("NoNewPrivileges is %q: %w", values, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return syscall.Exec(arguments[0], arguments, environment)
}

// DeniedCapabilities returns those that the unit takes away.
func DeniedCapabilities(file string) ([]uintptr, error) {
	lines, err := Settings(file, "CapabilityBoundingSet")
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
				return nil, fmt.Errorf("CapabilityBoundingSet names %s, which package unit does not know", name)
			}
			denied = append(denied, number)
		}
	}
	if len(denied) == 0 {
		return nil, errors.New("CapabilityBoundingSet denies nothing")
	}
	return denied, nil
}
