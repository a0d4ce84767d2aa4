package volume

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a mount of this process's mount namespace.
type Mount struct {
	// Device is the number of the file system's device.
	Device uint64
	// Root is the directory of the file system that is mounted, Target where.
	Root, Target string
	// Options are those of the mount, and Type and Source its file system and what that lies on.
	Options      []string
	Type, Source string
}

// ParseMounts reads what /proc/PID/mountinfo holds (proc_pid_mountinfo(5)). Lines that are not as they must be are an error: a mount that is overlooked
// would be taken for none.
func ParseMounts(content []byte) ([]Mount, error) {
	var mounts []Mount
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		mount, ok := parseMount(lines.Text())
		if !ok {
			return nil, fmt.Errorf("volume: the kernel's list of mounts has a line that this reeved does not understand: %.200q", lines.Text())
		}
		mounts = append(mounts, mount)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("volume: read the kernel's list of mounts: %w", err)
	}
	return mounts, nil
}

func parseMount(line string) (Mount, bool) {
	// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
	before, after, found := strings.Cut(line, " - ")
	fields, rest := strings.Split(before, " "), strings.Split(after, " ")
	if !found || len(fields) < 6 || len(rest) < 2 {
		return Mount{}, false
	}
	device, ok := parseDevice(fields[2], 10)
	if !ok {
		return Mount{}, false
	}
	return Mount{
		Device: device, Root: unescape(fields[3]), Target: unescape(fields[4]), Options: strings.Split(fields[5], ","), Type: unescape(rest[0]), Source: unescape(rest[1]),
	}, true
}

// parseDevice reads "major:minor".
func parseDevice(text string, base int) (uint64, bool) {
	major, minor, found := strings.Cut(text, ":")
	a, errA := strconv.ParseUint(major, base, 32)
	b, errB := strconv.ParseUint(minor, base, 32)
	return unix.Mkdev(uint32(a), uint32(b)), found && errA == nil && errB == nil
}

// unescape undoes the kernel's way to write blanks, tabs, new lines and back slashes: \040.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// Mounts returns the mounts that this process sees, the later ones over the earlier.
func Mounts() ([]Mount, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	return ParseMounts(content)
}

// MountAt returns the mount that is seen at a directory; nil if none begins there.
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

// MountsOf returns where a device is mounted.
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

// resolve is the path as the kernel lists it. What does not exist is no mount.
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

func parent(path string) string { return filepath.Dir(filepath.Clean(path)) }

// private are the flags of every mount of a volume: what roles write there makes nobody root and is no device.
const private = unix.MS_NOSUID | unix.MS_NODEV

// MountFS mounts the ext4 file system of a device, and proves that it is there and that what lies on it can neither make anybody root nor be a device.
func MountFS(device, target string) error {
	if err := mountPoint(target); err != nil {
		return err
	}
	// What mkfs says of errors is on the disk, and so whoever had that could have the machine panic.
	if err := unix.Mount(device, target, "ext4", private, "errors=remount-ro"); err != nil {
		return fmt.Errorf("volume: mount %s at %s: %w", device, target, err)
	}
	number, err := DeviceNumber(device)
	if err != nil {
		return err
	}
	return provenMount(target, number, "/")
}

// Bind mounts a directory of a mounted file system at another one, and proves it.
func Bind(mounted *Mount, name, target string) error {
	source := filepath.Join(mounted.Target, name)
	if err := mountPoint(target); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("volume: bind %s to %s: %w", source, target, err)
	}
	return provenMount(target, mounted.Device, filepath.Join(mounted.Root, name))
}

// mountPoint fails unless a directory may be mounted over: it is one, and no link to another, it is this user's, and it is empty. Whoever could write to the node's
// directories while the machine was off is not to have the volume, or his own file system, mounted over another directory of the machine.
func mountPoint(target string) error {
	wrong := func(problem string) error {
		return &DamagedError{Location: target, Problem: "the volume would be mounted there, and " + problem + ": see who made it so, and put an empty directory there"}
	}
	var stat unix.Stat_t
	if err := unix.Lstat(target, &stat); err != nil {
		return fmt.Errorf("volume: %s: %w", target, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return wrong("it is a link to another place")
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return wrong("it is no directory")
	case int(stat.Uid) != os.Geteuid():
		return wrong(fmt.Sprintf("it belongs to the user with the ID %d", stat.Uid))
	}
	found, err := Content(target)
	if err != nil {
		return err
	}
	if found != "" {
		return wrong("it is not empty (there is " + found + ")")
	}
	return nil
}

func provenMount(target string, device uint64, root string) error {
	mount, err := MountAt(target)
	if err != nil {
		return err
	}
	if mount == nil || mount.Device != device || mount.Root != root {
		return fmt.Errorf("volume: %s was mounted, and another file system is seen there (%+v): look with `findmnt %s` for what was mounted over it, and unmount that", target, mount, target)
	}
	options := strings.Join(mount.Options, ",") + ","
	if !strings.Contains(options, "nosuid,") || !strings.Contains(options, "nodev,") {
		return fmt.Errorf("volume: %s is mounted without nosuid and nodev (%s): unmount it and start again", target, options)
	}
	return nil
}

// Unmount unmounts what is at a directory, once, and proves that it is gone. Its error is unix.EBUSY if it is in use.
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
		return fmt.Errorf("volume: %s was unmounted, and is still mounted: look with `findmnt %s` for what mounts it again", target, target)
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

// DeviceNumber returns the number of a device.
func DeviceNumber(path string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, fmt.Errorf("volume: %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("volume: %s is no block device: name one, best as /dev/disk/by-id/…", path)
	}
	return stat.Rdev, nil
}
