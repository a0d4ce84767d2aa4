package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/address"
	"github.com/reeveproject/reeve/proto/passage"
)

// Probe looks at the machine, and at the places where a node has, or will have, its directories.
func Probe(places Places) Facts {
	f := Facts{
		UID:             os.Geteuid(),
		Capabilities:    capabilities(),
		PIDFD:           probePIDFD(),
		PeerPIDFD:       probePeerPIDFD(),
		LandlockABI:     probeLandlock(),
		Seccomp:         probeSeccomp(),
		NoNewPrivileges: probeNoNewPrivileges(),
		UserNamespaces:  probeUserNamespaces(),
		Cgroups:         probeCgroups(),
		Cryptsetup:      probeProgram("cryptsetup"),
		MakeFilesystem:  probeProgram("mkfs.ext4"),
		TPM:             probeTPM(),
		OpenFiles:       probeOpenFiles(),
		Clock:           probeClock(),
		Systemd:         isDirectory("/run/systemd/system"),
		Data:            probeDirectory(places.Data),
		Run:             probeDirectory(places.Run),
		Network:         places.Network,
	}
	f.Addresses, f.AddressesErr = address.Here(places.Network.GetInterfaces())
	f.NoInterfaces = noInterfaces(places.Network.GetInterfaces())
	f.Kernel = release()
	f.DMCrypt, f.Loop = probeDMCrypt(f.Kernel), probeLoop(f.Kernel)
	return f
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// capabilities are the effective ones; none if the kernel does not tell.
func capabilities() uint64 {
	var sets [2]unix.CapUserData // the lower and the upper 32 capabilities
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return 0
	}
	return uint64(sets[1].Effective)<<32 | uint64(sets[0].Effective)
}

func probePIDFD() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	return unix.Close(fd)
}

func probePeerPIDFD() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	fd, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return fmt.Errorf("SO_PEERPIDFD: %w", err)
	}
	return unix.Close(fd)
}

// probeLandlock asks for the version of the ABI; no ruleset is made.
func probeLandlock() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// probeSeccomp asks whether a filter may end a process; no filter is set.
func probeSeccomp() error {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	// The pointer is used within the call only.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

func probeNoNewPrivileges() error {
	if _, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_GET_NO_NEW_PRIVS: %w", err)
	}
	return nil
}

// probeUserNamespaces begins a process in a new user namespace with a program that is not there: what is left is the error, and which one it is tells.
func probeUserNamespaces() error {
	command := exec.Cmd{Path: "/proc/self/there-is-no-such-program", SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}}
	err := command.Start()
	switch {
	case err == nil:
		// It cannot be; a process that was started is waited for all the same.
		_ = command.Process.Kill()
		_ = command.Wait()
		return nil
	case errors.Is(err, syscall.ENOENT):
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return errors.New("user.max_user_namespaces is reached")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("clone: %w", err)
}

func probeCgroups() Cgroups {
	const root = "/sys/fs/cgroup"
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Cgroups{Mode: "none"}
	}
	found := Cgroups{V1: probeV1(root, string(groups))}
	tree := root
	switch {
	case isFilesystem(root, unix.CGROUP2_SUPER_MAGIC):
		found.Mode = "v2"
	case isFilesystem(filepath.Join(root, "unified"), unix.CGROUP2_SUPER_MAGIC):
		found.Mode, tree = "hybrid", filepath.Join(root, "unified")
	case isFilesystem(filepath.Join(root, "memory"), unix.CGROUP_SUPER_MAGIC), isFilesystem(filepath.Join(root, "cpu"), unix.CGROUP_SUPER_MAGIC):
		found.Mode = "v1"
		return found
	default:
		found.Mode = "none"
		return found
	}
	for line := range strings.Lines(string(groups)) {
		own, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !is {
			continue
		}
		own = filepath.Join(tree, filepath.Join("/", own))
		controllers, _ := os.ReadFile(filepath.Join(own, "cgroup.controllers"))
		found.Controllers = strings.Fields(string(controllers))
		found.Delegated = writable(own) == nil && writable(filepath.Join(own, "cgroup.procs")) == nil
	}
	return found
}

// probeV1 are the controllers with which the process may make groups below its own in the trees of v1.
func probeV1(root, groups string) []string {
	var usable []string
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, own, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(names, ",") {
			tree := filepath.Join(root, name)
			if !slices.Contains([]string{"cpu", "memory", "pids"}, name) || !isFilesystem(tree, unix.CGROUP_SUPER_MAGIC) {
				continue
			}
			group := filepath.Join(tree, filepath.Join("/", own))
			if !isDirectory(group) {
				// A container sees its own group as the root of the tree.
				group = tree
			}
			if writable(group) == nil {
				usable = append(usable, name)
			}
		}
	}
	slices.Sort(usable)
	return usable
}

// probeProgram looks for a program also where only root's PATH leads, as it does for reeved.
func probeProgram(name string) error {
	if _, err := exec.LookPath(name); err == nil {
		return nil
	}
	for _, directory := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if _, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			return nil
		}
	}
	return errors.New(name + " is not installed")
}

// probeLoop looks whether loop devices are there or their module could be loaded.
func probeLoop(release string) error {
	if _, err := os.Stat("/dev/loop-control"); err == nil {
		return writable("/dev/loop-control")
	}
	if hasModule(release, "loop") {
		return nil
	}
	return errors.New("there is no /dev/loop-control")
}

// hasModule says whether something is in the kernel, or is a module that could be loaded.
func hasModule(release, module string) bool {
	for _, list := range []string{"modules.builtin", "modules.dep"} {
		names, err := os.ReadFile(filepath.Join("/lib/modules", release, list))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(names)) {
			path, _, _ := strings.Cut(line, ":")
			name, _, _ := strings.Cut(filepath.Base(strings.TrimSpace(path)), ".")
			if strings.ReplaceAll(name, "-", "_") == module {
				return true
			}
		}
	}
	return false
}

// probeDMCrypt looks whether dm-crypt is in the kernel, is loaded, or is a module that could be.
func probeDMCrypt(release string) error {
	if isDirectory("/sys/module/dm_crypt") || hasModule(release, "dm_crypt") {
		return nil
	}
	if isDirectory("/sys/module/dm_mod") || isDirectory("/sys/devices/virtual/misc/device-mapper") {
		return errors.New("the kernel has the device mapper and no dm-crypt that can be seen")
	}
	return errors.New("the kernel has no device mapper, and no module of it")
}

func probeTPM() TPM {
	version, err := os.ReadFile("/sys/class/tpm/tpm0/tpm_version_major")
	if err != nil {
		if !isDirectory("/sys/class/tpm/tpm0") {
			return TPM{}
		}
		// Kernels before 5.6 do not say; only a TPM 2.0 has a resource manager.
		if _, err := os.Stat("/dev/tpmrm0"); err != nil {
			return TPM{Version: "1"}
		}
		version = []byte("2")
	}
	return TPM{Version: strings.TrimSpace(string(version)), Usable: writable("/dev/tpmrm0")}
}

func probeOpenFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Max
}

// probeClock reads the state of the kernel's clock; with no modes set adjtimex changes nothing.
func probeClock() error {
	var clock unix.Timex
	state, err := unix.Adjtimex(&clock)
	switch {
	case err != nil:
		return fmt.Errorf("adjtimex: %w", err)
	case state == unix.TIME_ERROR, clock.Status&unix.STA_UNSYNC != 0:
		return errors.New("no time service keeps it right")
	}
	return nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFilesystem(path string, magic int64) bool {
	var found unix.Statfs_t
	return unix.Statfs(path, &found) == nil && int64(found.Type) == magic
}

// writable says why the process cannot write to a file or directory; nil: it can. Nothing is written.
func writable(path string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	return nil
}

// filesystems are the names of the file systems on which nodes are found.
var filesystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.NFS_SUPER_MAGIC: "nfs",
	unix.SQUASHFS_MAGIC: "squashfs", unix.FUSE_SUPER_MAGIC: "fuse", 0x2fc12fc1: "zfs", 0xca451a4e: "bcachefs",
}

func probeDirectory(path string) Directory {
	d := Directory{Path: path}
	absolute, err := filepath.Abs(path)
	if err != nil {
		d.Err = err
		return d
	}
	d.Path = absolute
	if d.At, d.Err = nearest(absolute); d.Err != nil {
		return d
	}
	var found unix.Statfs_t
	if err := unix.Statfs(d.At, &found); err != nil {
		d.Err = fmt.Errorf("%s: %w", d.At, err)
		return d
	}
	d.Filesystem = filesystems[int64(found.Type)]
	if d.Filesystem == "" {
		d.Filesystem = fmt.Sprintf("file system %#x", found.Type)
	}
	d.FreeBytes = found.Bavail * uint64(found.Bsize)
	d.FreeFiles, d.Files = found.Ffree, found.Files
	d.ReadOnly, d.NoExec = found.Flags&unix.ST_RDONLY != 0, found.Flags&unix.ST_NOEXEC != 0
	d.Writable = writable(d.At)
	if d.Barriers, d.Err = passage.Closed(d.Path); d.Err != nil {
		return d
	}
	d.Fscrypt = probeFscrypt(d.At)
	return d
}

// nearest returns the nearest directory that exists, with links followed: that of a path, or one above it.
func nearest(path string) (string, error) {
	for {
		resolved, err := filepath.EvalSymlinks(path)
		switch {
		case err == nil:
			if !isDirectory(resolved) {
				return "", fmt.Errorf("%s is not a directory", path)
			}
			return resolved, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		// A link to what is not there: what would be made is its target.
		if target, err := os.Readlink(path); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path), target)
			}
			path = target
			continue
		}
		path = filepath.Dir(path)
	}
}

// probeFscrypt asks for the encryption policy of a directory. That it has none says that it could have one.
func probeFscrypt(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = directory.Close() }()
	// struct fscrypt_get_policy_ex_arg: how much room there is, then the policy.
	var policy struct {
		size   uint64
		policy [32]byte
	}
	policy.size = uint64(len(policy.policy))
	// The pointer is used within the call only.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, directory.Fd(), unix.FS_IOC_GET_ENCRYPTION_POLICY_EX, uintptr(unsafe.Pointer(&policy)))
	switch errno {
	case 0, unix.ENODATA:
		return nil
	case unix.ENOTTY:
		return fmt.Errorf("the file system at %s has no encryption", path)
	case unix.EOPNOTSUPP:
		return fmt.Errorf("the file system at %s was made without the feature encrypt, or the kernel without fscrypt", path)
	default:
		return fmt.Errorf("the file system at %s: %w", path, errno)
	}
}
