package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// viewOptions limit the tmpfs at the view's root, and so what a role can keep in its /tmp.
	viewOptions = "mode=0755,size=16m,nr_inodes=4096"
	// viewAt is where the tmpfs is mounted meanwhile, in the thread's own namespace. It exists everywhere, and its own mount was taken before.
	viewAt = "/etc"
	// everywhere are the attributes of all mounts, except where more is granted.
	everywhere = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
)

// view gives the calling thread, and the process that it starts, its own view of the file systems: the places, /proc, some devices and a small /tmp.
//
// It consists of mounts, not copies: later changes below a shown directory are visible. Mounts and unmounts there propagate from the host, so a role
// does not keep the host from unmounting.
func view(list []place, uid, gid uint32) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("a mount namespace of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("stop mounts from propagating to the host: %w", err)
	}
	shown, err := take(list)
	defer func() {
		for _, at := range shown {
			_ = unix.Close(at.tree)
		}
	}()
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", viewAt, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, viewOptions); err != nil {
		return fmt.Errorf("mount an empty file system: %w", err)
	}
	if err := unix.Chdir(viewAt); err != nil {
		return err
	}
	old := syscall.Umask(0)
	err = fillView(shown, list, uid, gid)
	syscall.Umask(old)
	if err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make it the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return restrict(shown, hasScratch(list))
}

// mounted is a place with a detached mount of its own.
type mounted struct {
	place
	tree      int
	directory bool
}

// take clones the mounts to be shown, while the host's file systems are visible.
func take(list []place) (shown []mounted, err error) {
	for _, at := range list {
		sum, covered := inherited(list, at.path)
		if covered && at.access&^sum == 0 {
			continue
		}
		at.access |= sum
		fd, err := unix.Openat2(unix.AT_FDCWD, at.path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err != nil {
			return shown, fmt.Errorf("%s: %w", at.path, err)
		}
		var stat unix.Stat_t
		err = unix.Fstat(fd, &stat)
		tree := -1
		if err == nil {
			tree, err = unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		}
		_ = unix.Close(fd)
		if err != nil {
			return shown, fmt.Errorf("%s: %w", at.path, err)
		}
		shown = append(shown, mounted{place: at, tree: tree, directory: stat.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	return shown, nil
}

// fillView fills the empty file system, which is the working directory.
func fillView(shown []mounted, list []place, uid, gid uint32) error {
	for _, directory := range []string{"proc", "dev", "tmp"} {
		if err := unix.Mkdir(directory, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "hidepid=2"); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, name := range harmless {
		if err := device("dev/" + name); err != nil {
			return fmt.Errorf("/dev/%s: %w", name, err)
		}
	}
	if err := unix.Symlink("/proc/self/fd", "dev/fd"); err != nil {
		return err
	}
	if err := scratch(list, uid, gid); err != nil {
		return fmt.Errorf("%s: %w", scratchAt, err)
	}
	for _, at := range shown {
		target := strings.TrimPrefix(at.path, "/")
		_, covered := inherited(list, at.path)
		if !covered && !below(at.path, "/proc") {
			if err := mountPoint(target, at.directory); err != nil {
				return fmt.Errorf("%s: %w", at.path, err)
			}
		}
		if at.path == "/proc" {
			continue // the view has its own, which hides other processes
		}
		if err := unix.MoveMount(at.tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("%s: %w", at.path, err)
		}
	}
	return links(list)
}

// scratchAt is a small directory of the process's own, for libraries that need temporary files.
const scratchAt = "/tmp"

// scratch gives /tmp its own mount, because the rest of the file system is read-only.
func scratch(list []place, uid, gid uint32) error {
	if !hasScratch(list) {
		return nil
	}
	if err := unix.Chmod("tmp", 0o700); err != nil {
		return err
	}
	if err := unix.Lchown("tmp", int(uid), int(gid)); err != nil {
		return err
	}
	return unix.Mount("tmp", "tmp", "", unix.MS_BIND, "")
}

// hasScratch reports whether a process has it: not if something of the host's is shown at or below it, which would then be writable too.
func hasScratch(list []place) bool {
	return !slices.ContainsFunc(list, func(at place) bool { return below(at.path, scratchAt) })
}

// links makes the links that lead to a place, unless a shown directory has them.
func links(list []place) error {
	for _, at := range list {
		for _, name := range at.names {
			if slices.ContainsFunc(list, func(other place) bool { return below(name, other.path) }) {
				continue // a shown directory has the link
			}
			link := strings.TrimPrefix(name, "/")
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				return err
			}
			if err := unix.Symlink(at.path, link); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// mountPoint makes a mount point in the new file system.
func mountPoint(path string, directory bool) error {
	if directory {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// device makes a device like the host's, or shows the host's own if the core may not.
func device(path string) error {
	var stat unix.Stat_t
	if err := unix.Stat("/"+path, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return syscall.ENODEV
	}
	if unix.Mknod(path, unix.S_IFCHR|0o666, int(stat.Rdev)) == nil {
		return nil
	}
	if err := mountPoint(path, false); err != nil {
		return err
	}
	return unix.Mount("/"+path, path, "", unix.MS_BIND, "")
}

// restrict restricts all mounts at once, then reopens the granted few.
func restrict(shown []mounted, scratch bool) error {
	change := func(path string, flags uint, set, clear uint64) error {
		if err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: set, Attr_clr: clear}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	if err := change("/", unix.AT_RECURSIVE, everywhere, 0); err != nil {
		return err
	}
	if err := change("/", 0, 0, unix.MOUNT_ATTR_NODEV); err != nil { // the devices are here
		return err
	}
	if scratch {
		if err := change(scratchAt, 0, 0, unix.MOUNT_ATTR_RDONLY); err != nil {
			return err
		}
	}
	for _, at := range shown {
		var clear uint64
		for access, attribute := range map[access]uint64{
			writes: unix.MOUNT_ATTR_RDONLY, executes: unix.MOUNT_ATTR_NOEXEC, devices: unix.MOUNT_ATTR_NODEV,
		} {
			if at.access&access != 0 {
				clear |= attribute
			}
		}
		if clear == 0 || at.path == "/proc" {
			continue
		}
		if err := change(at.path, unix.AT_RECURSIVE, 0, clear); err != nil {
			return err
		}
	}
	return nil
}
