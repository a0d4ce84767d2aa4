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
	// viewOptions bound the file system that holds the view together, and with it what a role can keep in its /tmp.
	viewOptions = "mode=0755,size=16m,nr_inodes=4096"
	// viewAt is covered while the view is made, in the thread's own namespace only. It exists everywhere, and what is shown of it was taken before.
	viewAt = "/etc"
	// everywhere holds for all that is shown, except where more is granted.
	everywhere = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
)

// view gives the calling thread, and so the process that it starts, file systems of its own: nothing but the places, /proc, some devices and a small /tmp.
//
// It is made of mounts, not of copies: what is made or changed below a shown directory later is seen. Mounts that come and go there on the host do so
// in the view too, so that a role does not keep the host from unmounting.
func view(list []place, uid, gid uint32) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("a mount namespace of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep the host from seeing its mounts: %w", err)
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
		return fmt.Errorf("an empty file system: %w", err)
	}
	if err := unix.Chdir(viewAt); err != nil {
		return err
	}
	old := syscall.Umask(0)
	err = furnish(shown, list, uid, gid)
	syscall.Umask(old)
	if err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make it the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return restrict(shown, hasScratch(list))
}

// mounted is a place that needs a mount of its own, and the mount, which is nowhere yet.
type mounted struct {
	place
	tree      int
	directory bool
}

// take takes hold of what is to be shown, while the host's file systems can be seen.
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

// furnish fills the empty file system that is the working directory.
func furnish(shown []mounted, list []place, uid, gid uint32) error {
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
			continue // it has one of its own, in which it sees no processes of others
		}
		if err := unix.MoveMount(at.tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("%s: %w", at.path, err)
		}
	}
	return links(list)
}

// scratchAt is a small directory of the process's own, for libraries that need a place for temporary files.
const scratchAt = "/tmp"

// scratch gives it a mount of its own, since the file system as a whole is read-only.
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

// hasScratch reports whether a process has it: not where something of the host's is shown in its place or below it, which would then be as open as it is.
func hasScratch(list []place) bool {
	return !slices.ContainsFunc(list, func(at place) bool { return below(at.path, scratchAt) })
}

// links makes the links by which a place is known, where they are not shown anyway.
func links(list []place) error {
	for _, at := range list {
		for _, name := range at.names {
			if slices.ContainsFunc(list, func(other place) bool { return below(name, other.path) }) {
				continue // the link is shown with the directory that it is in
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

// mountPoint makes what something is mounted on, in the new file system.
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

// device makes a device like the host's; where the core may not, the host's own is shown.
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

// restrict takes from all mounts what is not granted: at once for all of them, and then gives back to the few.
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
	if err := change("/", 0, 0, unix.MOUNT_ATTR_NODEV); err != nil { // it holds the devices
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
