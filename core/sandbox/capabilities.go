package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilityNumbers are the capabilities that can be granted.
var capabilityNumbers = map[string]uintptr{
	"audit-write": unix.CAP_AUDIT_WRITE, "chown": unix.CAP_CHOWN, "fowner": unix.CAP_FOWNER, "ipc-lock": unix.CAP_IPC_LOCK,
	"ipc-owner": unix.CAP_IPC_OWNER, "kill": unix.CAP_KILL, "lease": unix.CAP_LEASE, "linux-immutable": unix.CAP_LINUX_IMMUTABLE,
	"net-admin": unix.CAP_NET_ADMIN, "net-bind-service": unix.CAP_NET_BIND_SERVICE, "net-broadcast": unix.CAP_NET_BROADCAST,
	"net-raw": unix.CAP_NET_RAW, "sys-boot": unix.CAP_SYS_BOOT, "sys-nice": unix.CAP_SYS_NICE, "sys-pacct": unix.CAP_SYS_PACCT,
	"sys-resource": unix.CAP_SYS_RESOURCE, "sys-time": unix.CAP_SYS_TIME, "syslog": unix.CAP_SYSLOG, "wake-alarm": unix.CAP_WAKE_ALARM,
}

// capabilitySet is a bit set of capabilities.
type capabilitySet uint64

func (s capabilitySet) has(number uintptr) bool { return s>>number&1 == 1 }

func setOf(names []string) (capabilitySet, error) {
	var set capabilitySet
	for _, name := range names {
		number, ok := capabilityNumbers[name]
		if !ok {
			return 0, fmt.Errorf("%q is not a capability that can be granted", name)
		}
		set |= 1 << number
	}
	return set, nil
}

func (s capabilitySet) numbers() []uintptr {
	var numbers []uintptr
	for number := uintptr(0); number < 64; number++ {
		if s.has(number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// heldCapabilities returns the capabilities that the core can pass on.
func heldCapabilities() (held capabilitySet, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return capabilitySet(data[0].Permitted) | capabilitySet(data[1].Permitted)<<32, nil
}

func lastCapability() uintptr {
	if text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap"); err == nil {
		if last, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 6); err == nil {
			return uintptr(last)
		}
	}
	return unix.CAP_LAST_CAP
}

// drop drops all capabilities but keep from what the calling thread's children get. A root thread keeps its own, because it still has to change the
// user; a child that is not root loses them by that. Without root, the thread drops its own too.
func drop(keep capabilitySet, last uintptr, root bool) error {
	if err := prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return fmt.Errorf("ambient: %w", err)
	}
	if root {
		for number := uintptr(0); number <= last; number++ {
			if keep.has(number) {
				continue
			}
			if err := prctl(unix.PR_CAPBSET_DROP, number); err != nil {
				return fmt.Errorf("bounding set: %w", err)
			}
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		kept := uint32(keep >> (32 * i))
		data[i].Inheritable = 0
		if !root {
			data[i].Permitted &= kept
			data[i].Effective &= kept
		}
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	return nil
}

// prctl changes only the calling thread.
func prctl(option int, arguments ...uintptr) error {
	var a [4]uintptr
	copy(a[:], arguments)
	if _, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), a[0], a[1], a[2], a[3], 0); errno != 0 {
		return errno
	}
	return nil
}
