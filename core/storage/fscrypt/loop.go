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

// Where loop devices are asked for, and where they are.
const (
	loopControl = "/dev/loop-control"
	loopPrefix  = "/dev/loop"
)

// attempts is how often a free loop device is asked for that another process takes before it can be used.
const attempts = 64

// takeImage opens an image and takes it: the lock stays with the loop device that it is attached to, so that no two can have it, in whatever container they
// are. *AttachedError if another has it.
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
		// Who attached it by hand holds no lock.
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

// checkOwner fails if anybody else could write to an image below the file system that is mounted from it: it is this user's alone, and has no other name.
func checkOwner(file *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return fmt.Errorf("fscrypt: %s: %w", file.Name(), err)
	}
	problem := ""
	switch {
	case int(stat.Uid) != os.Geteuid():
		problem = fmt.Sprintf("it belongs to the user with the ID %d: see who did that; `chown %d %s` gives it back", stat.Uid, os.Geteuid(), file.Name())
	case stat.Mode&0o077 != 0:
		problem = fmt.Sprintf("others than its owner may use it (mode %#o): see who did that; `chmod 600 %s` takes that back", stat.Mode&0o777, file.Name())
	case stat.Nlink != 1:
		problem = fmt.Sprintf("it has %d names, and whoever reaches another one can write to it: find them with `find / -xdev -inum %d`, and remove the others", stat.Nlink, stat.Ino)
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

// loopOf returns the loop device to which an image is attached, and its number; "" if there is none.
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

// backing returns the file that a loop device has, as the kernel names it; "" if the device is no loop device or has none.
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

// attach gives an image a loop device, which it loses by itself when the returned file is closed and what was mounted from it is unmounted. *LoopError if none
// can be had.
func attach(file *os.File) (*os.File, error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &LoopError{Problem: "load the kernel module (`modprobe loop`), give the container " + loopControl + ", or use the kind luks", Err: err}
	}
	defer func() { _ = control.Close() }()
	for range attempts {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, &LoopError{Problem: "the kernel has none left: detach one that is not needed (`losetup`)", Err: err}
		}
		device, err := os.OpenFile(fmt.Sprintf("%s%d", loopPrefix, number), os.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &LoopError{Problem: "all that this machine or container has are in use: detach one that is not needed (`losetup`), or give the container more of them", Err: err}
		}
		err = configure(device, file)
		if err == nil {
			return device, nil
		}
		if problem := device.Close(); problem != nil {
			err = errors.Join(err, problem)
		}
		// Another process was faster.
		if !errors.Is(err, unix.EBUSY) {
			return nil, &LoopError{Problem: "the kernel does not take " + file.Name() + " for one", Err: err}
		}
	}
	return nil, &LoopError{Problem: "others took every free one: try again", Err: unix.EBUSY}
}

// configure binds a loop device to a file. Direct I/O keeps the machine from having everything in memory twice.
func configure(device, file *os.File) error {
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
	// It is for people who look; the last byte stays zero.
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file.Name())
	err := unix.IoctlLoopConfigure(int(device.Fd()), &config)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// Not every file system under the image can do it.
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	}
	return err
}
