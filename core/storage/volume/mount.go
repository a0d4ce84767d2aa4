package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/mountinfo"
)

// Mount is a mount in this process's mount namespace.
type Mount = mountinfo.Mount

// Mounts returns the mounts that this process sees, oldest first.
func Mounts() ([]Mount, error) {
	mounts, err := mountinfo.Own()
	if err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	return mounts, nil
}

// MountAt returns the topmost mount at a directory; nil if it is no mount point.
func MountAt(target string) (*Mount, error) {
	real, err := resolve(target)
	if err != nil {
		return nil, err
	}
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].Target == real {
			return &mounts[i], nil
		}
	}
	return nil, nil
}

// MountsOf returns the mounts of a device.
func MountsOf(device uint64) ([]Mount, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var found []Mount
	for _, mount := range mounts {
		if mount.Device == device {
			found = append(found, mount)
		}
	}
	return found, nil
}

// resolve returns the path as the kernel lists it. A path that does not exist is only cleaned.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return filepath.Clean(path), nil
	}
	if err != nil {
		return "", fmt.Errorf("volume: %w", err)
	}
	return filepath.Abs(real)
}

// private are the flags of every mount of a volume: files that roles write there grant no privileges and are no devices.
const private = unix.MS_NOSUID | unix.MS_NODEV

// MountFS mounts a device's ext4 file system with the private flags, and verifies the mount.
func MountFS(device, target string) error {
	if err := mountPoint(target); err != nil {
		return err
	}
	// The superblock says what to do on errors. Without this option, whoever had the disk could make the machine panic.
	if err := unix.Mount(device, target, "ext4", private, "errors=remount-ro"); err != nil {
		return fmt.Errorf("volume: mount %s at %s: %w", device, target, err)
	}
	number, err := DeviceNumber(device)
	if err != nil {
		return err
	}
	return verifyMount(target, number, "/")
}

// Bind mounts a directory of a mounted file system at target, and verifies the mount.
func Bind(mounted *Mount, name, target string) error {
	source := filepath.Join(mounted.Target, name)
	if err := mountPoint(target); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("volume: bind %s to %s: %w", source, target, err)
	}
	return verifyMount(target, mounted.Device, filepath.Join(mounted.Root, name))
}

// MakeMountPoint makes the data directory, and fails with *DamagedError if a volume that is mounted there would hide something.
func MakeMountPoint(data string) error {
	found, err := storage.Content(data)
	if err != nil {
		return err
	}
	if found != "" {
		return &DamagedError{Location: data, Problem: fmt.Sprintf("the volume cannot be mounted there: it is not empty (there is %s): move that away", found)}
	}
	return storage.MakeDirectory(data, 0o700)
}

// mountPoint fails unless target is an empty directory of this user and no link. Otherwise whoever could write to the node's directories while the
// machine was off could have a file system mounted over another directory of the machine.
func mountPoint(target string) error {
	wrong := func(problem string) error {
		return &DamagedError{Location: target, Problem: "the volume cannot be mounted there: " + problem + ": find out who did that, and put an empty directory there"}
	}
	var stat unix.Stat_t
	if err := unix.Lstat(target, &stat); err != nil {
		return fmt.Errorf("volume: %s: %w", target, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return wrong("it is a link")
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return wrong("it is not a directory")
	case int(stat.Uid) != os.Geteuid():
		return wrong(fmt.Sprintf("it belongs to user ID %d", stat.Uid))
	}
	found, err := storage.Content(target)
	if err != nil {
		return err
	}
	if found != "" {
		return wrong("it is not empty (there is " + found + ")")
	}
	return nil
}

func verifyMount(target string, device uint64, root string) error {
	mount, err := MountAt(target)
	if err != nil {
		return err
	}
	if mount == nil || mount.Device != device || mount.Root != root {
		return fmt.Errorf("volume: %s was mounted, but another file system is there (%+v): run `findmnt %s` to see what was mounted over it, and unmount that", target, mount, target)
	}
	options := strings.Join(mount.Options, ",") + ","
	if !strings.Contains(options, "nosuid,") || !strings.Contains(options, "nodev,") {
		return fmt.Errorf("volume: %s is mounted without nosuid and nodev (%s): unmount it and start again", target, options)
	}
	return nil
}

// Unmount unmounts the topmost mount at a directory and verifies that it is gone. The error is unix.EBUSY if it is in use.
func Unmount(target string) error {
	before, err := mountsAt(target)
	if err != nil {
		return err
	}
	if before == 0 {
		return nil
	}
	if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("volume: unmount %s: %w", target, err)
	}
	after, err := mountsAt(target)
	if err != nil {
		return err
	}
	if after >= before {
		return fmt.Errorf("volume: %s is still mounted after it was unmounted: run `findmnt %s` to see what mounts it again", target, target)
	}
	return nil
}

func mountsAt(target string) (int, error) {
	real, err := resolve(target)
	if err != nil {
		return 0, err
	}
	mounts, err := Mounts()
	if err != nil {
		return 0, err
	}
	count := 0
	for _, mount := range mounts {
		if mount.Target == real {
			count++
		}
	}
	return count, nil
}

// DeviceNumber returns the number of a block device.
func DeviceNumber(path string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, fmt.Errorf("volume: %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("volume: %s is not a block device: name one, preferably as /dev/disk/by-id/…", path)
	}
	return stat.Rdev, nil
}
