package fscrypt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// The paths of loop devices.
const (
	loopControl = "/dev/loop-control"
	loopPrefix  = "/dev/loop"
)

// attempts is how often attach asks for a free loop device when others are faster.
const attempts = 64

// takeImage opens and locks an image. The loop device keeps the lock, so no other process has the image, not even in another container.
// *AttachedError if another has it.
func takeImage(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("fscrypt: open the image: %w", err)
	}
	if err := checkOwner(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) {
		// Whoever attached it by hand holds no lock.
		device, number, problem := loopOf(path)
		switch {
		case problem != nil:
			err = problem
		case device != "":
			err = attached(path, device, number)
		case err != nil:
			err = &AttachedError{Image: path}
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// checkOwner fails if anybody else could write to the image below its mounted file system. Its owner is this user, its mode gives nothing to others,
// and it has one name.
func checkOwner(file *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return fmt.Errorf("fscrypt: %s: %w", file.Name(), err)
	}
	problem := ""
	switch {
	case int(stat.Uid) != os.Geteuid():
		problem = fmt.Sprintf("it belongs to user ID %d: find out who did that, then run `chown %d %s`", stat.Uid, os.Geteuid(), file.Name())
	case stat.Mode&0o077 != 0:
		problem = fmt.Sprintf("others than its owner may use it (mode %#o): find out who did that, then run `chmod 600 %s`", stat.Mode&0o777, file.Name())
	case stat.Nlink != 1:
		problem = fmt.Sprintf("it has %d names, and whoever reaches another one can write to it: run `find / -xdev -inum %d`, and remove the others", stat.Nlink, stat.Ino)
	default:
		return nil
	}
	return &volume.DamagedError{Location: file.Name(), Problem: problem}
}

func attached(path, device string, number uint64) error {
	problem := &AttachedError{Image: path, Device: device}
	mounts, err := volume.MountsOf(number)
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		problem.Mounts = append(problem.Mounts, mount.Target)
	}
	return problem
}

// loopOf returns the loop device of an image and its number; "" if it is not attached.
func loopOf(path string) (string, uint64, error) {
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", 0, fmt.Errorf("fscrypt: %w", err)
	}
	want, err := os.Stat(path)
	if err != nil {
		return "", 0, fmt.Errorf("fscrypt: %w", err)
	}
	for _, loop := range loops {
		backing, err := os.ReadFile(loop)
		if err != nil {
			// It was detached meanwhile.
			continue
		}
		have, err := os.Stat(strings.TrimSuffix(string(backing), "\n"))
		if err != nil || !os.SameFile(want, have) {
			continue
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(loop)))
		number, err := volume.DeviceNumber(filepath.Join("/dev", name))
		if err != nil {
			return "", 0, err
		}
		return filepath.Join("/dev", name), number, nil
	}
	return "", 0, nil
}

// backing returns the file of a loop device, as the kernel names it; "" if the device has none or is no loop device.
func backing(device uint64) (string, error) {
	content, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(device), unix.Minor(device)))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("fscrypt: %w", err)
	}
	return strings.TrimSuffix(string(content), "\n"), nil
}

// attach attaches an image to a loop device, and returns the open device. The kernel detaches it once the file is closed and its file system
// unmounted. *LoopError if there is none.
func attach(file *os.File) (*os.File, error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &LoopError{Problem: "load the kernel module (`modprobe loop`), give the container " + loopControl + ", or use the kind luks", Err: err}
	}
	defer func() { _ = control.Close() }()
	for range attempts {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, &LoopError{Problem: "none is free: detach one that is not needed (`losetup`)", Err: err}
		}
		device, err := os.OpenFile(fmt.Sprintf("%s%d", loopPrefix, number), os.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &LoopError{Problem: "all of this machine or container are in use: detach one that is not needed (`losetup`), or give the container more", Err: err}
		}
		err = configure(device, file)
		if err == nil {
			return device, nil
		}
		if problem := device.Close(); problem != nil {
			err = errors.Join(err, problem)
		}
		// EBUSY: another process was faster.
		if !errors.Is(err, unix.EBUSY) {
			return nil, &LoopError{Problem: "the kernel refuses " + file.Name(), Err: err}
		}
	}
	return nil, &LoopError{Problem: "others took every free one: try again", Err: unix.EBUSY}
}

// configure attaches a file to a loop device. Direct I/O avoids a second copy of everything in the page cache.
func configure(device, file *os.File) error {
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
	// The name is for people; its last byte stays zero.
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file.Name())
	err := unix.IoctlLoopConfigure(int(device.Fd()), &config)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// Not every file system below supports direct I/O.
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	}
	return err
}
