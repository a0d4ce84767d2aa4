package sandbox

import (
	"fmt"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/remit"
)

// landlockKnown is the newest Landlock version whose rights are used here.
const landlockKnown = 7

const (
	readRights  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	deviceRights = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// fileRights are the rights that apply to files other than directories.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// landlockVersion returns the kernel's Landlock version; 0 if it has none.
func landlockVersion() (int, error) {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(version), nil
}

// handledFiles returns the file rights that a Landlock version knows: what is not granted of them is refused.
func handledFiles(version int) uint64 {
	var rights uint64 = unix.LANDLOCK_ACCESS_FS_REFER - 1 // all of the first version
	if version >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 5 {
		rights |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights
}

// handledPorts returns the TCP rights that are restricted to ports.
func handledPorts(version int, r remit.Remit) uint64 {
	var rights uint64
	if version < 4 {
		return 0
	}
	if !r.Listen.Any {
		rights |= unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	if !r.Connect.Any {
		rights |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	return rights
}

func (a access) rights() uint64 {
	var rights uint64
	if a&reads != 0 {
		rights |= readRights
	}
	if a&writes != 0 {
		rights |= writeRights
	}
	if a&executes != 0 {
		rights |= unix.LANDLOCK_ACCESS_FS_EXECUTE
	}
	if a&devices != 0 {
		rights |= deviceRights
	}
	return rights
}

// landlock confines the calling thread to the places as it sees them. The executable may be executed even if it is not visible; what is in no file
// system, such as a memfd, can always be executed. Landlock also separates roles: a process cannot trace, or with a new enough kernel signal, a
// process outside its domain.
func landlock(version int, list []place, ownView bool, executable int, r remit.Remit) error {
	version = min(version, landlockKnown)
	files := handledFiles(version)
	attribute := unix.LandlockRulesetAttr{Handled_access_fs: files, Handled_access_net: handledPorts(version, r)}
	if version >= 6 {
		attribute.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	// An older kernel accepts newer attributes that are zero.
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attribute)), unsafe.Sizeof(attribute), 0)
	if errno != 0 {
		return fmt.Errorf("make rules: %w", errno)
	}
	rules := int(fd)
	defer func() { _ = unix.Close(rules) }()
	allow := func(path string, rights uint64) error {
		at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == nil {
			err = allowBeneath(rules, at, rights&files)
			_ = unix.Close(at)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	for _, at := range list {
		if at.access == 0 {
			continue
		}
		if err := allow(at.path, at.access.rights()); err != nil {
			return err
		}
	}
	if err := allow("/proc", readRights); err != nil {
		return err
	}
	for _, name := range harmless {
		if err := allow(filepath.Join("/dev", name), unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
			return err
		}
	}
	if ownView && hasScratch(list) {
		if err := allow(scratchAt, (reads | writes).rights()); err != nil {
			return err
		}
	}
	if executable < 0 {
		executable = rules // a placeholder: it is in no file system either
	}
	err := allowBeneath(rules, executable, unix.LANDLOCK_ACCESS_FS_EXECUTE|unix.LANDLOCK_ACCESS_FS_READ_FILE)
	if err != nil && err != unix.EBADFD { // EBADFD: it is a memfd
		return fmt.Errorf("the executable: %w", err)
	}
	for right, ports := range map[uint64]remit.Ports{
		unix.LANDLOCK_ACCESS_NET_BIND_TCP: r.Listen, unix.LANDLOCK_ACCESS_NET_CONNECT_TCP: r.Connect,
	} {
		if attribute.Handled_access_net&right == 0 {
			continue
		}
		for _, port := range ports.Numbers {
			if err := allowPort(rules, port, right); err != nil {
				return fmt.Errorf("TCP port %d: %w", port, err)
			}
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return fmt.Errorf("enforce the rules: %w", errno)
	}
	return nil
}

func allowBeneath(rules, at int, rights uint64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(at, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	if rights == 0 {
		return nil
	}
	// The kernel's structure is packed to 12 bytes, which is where this one's fields end.
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(at)}
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// landlockRuleNetPort is LANDLOCK_RULE_NET_PORT, landlockNetPort its attribute.
const landlockRuleNetPort = 2

type landlockNetPort struct{ allowed, port uint64 }

func allowPort(rules int, port uint16, right uint64) error {
	rule := landlockNetPort{allowed: right, port: uint64(port)}
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), landlockRuleNetPort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
