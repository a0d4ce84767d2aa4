package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// deviceTimeout is how long the machine waits for a disk. Emulated ones are there as soon as their driver is.
const deviceTimeout = 30 * time.Second

// initramfs loads the modules, and goes on in the system's disk.
func initramfs() error {
	for _, m := range []struct{ kind, at string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := mount(m.kind, m.kind, m.at, 0, ""); err != nil {
			return err
		}
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	if err := mountDisk("system", "/system", unix.MS_RDONLY); err != nil {
		return err
	}
	for _, at := range []string{"/dev", "/proc", "/sys"} {
		if err := unix.Mount(at, "/system"+at, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", at, err)
		}
	}
	if err := os.Chdir("/system"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("make the system's disk the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the system's disk: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("run /sbin/init: %w", unix.Exec("/sbin/init", []string{"init", "system"}, nil))
}

// loadModules loads the modules that a list names, in its order.
func loadModules(directory string) error {
	list, err := os.ReadFile(filepath.Join(directory, "list"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(list)) {
		file, err := os.Open(filepath.Join(directory, name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		_ = file.Close()
		// ENODEV is the word of a driver for something that this processor does not have: another one does its work, more slowly.
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("load the module %s: %w", name, err)
		}
	}
	return nil
}

// mountDisk mounts the disk of a serial number.
func mountDisk(serial, at string, flags uintptr) error {
	device, err := awaitDisk(serial)
	if err != nil {
		return err
	}
	return mount("ext4", device, at, flags, "")
}

// awaitDisk returns the device of the disk that the machine was given under a serial number.
func awaitDisk(serial string) (string, error) {
	for deadline := time.Now().Add(deviceTimeout); ; {
		files, err := filepath.Glob("/sys/block/*/serial")
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if content, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(content)) == serial {
				return filepath.Join("/dev", filepath.Base(filepath.Dir(file))), nil
			}
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("no disk has the serial number %q", serial)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// mountSystem mounts what a running system has, pure cgroup v2 among it.
func mountSystem() error {
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		options  string
	}{
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666"},
		{"cgroup2", "/sys/fs/cgroup", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"securityfs", "/sys/kernel/security", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	} {
		if err := mount(m.kind, m.kind, m.at, m.flags, m.options); err != nil {
			return err
		}
	}
	// As a system has its names in /dev/disk/by-id, which stay the same however many disks there are.
	if err := linkDisks("/dev/disk/by-id"); err != nil {
		return err
	}
	for _, link := range []struct{ from, to string }{
		{"/dev/fd", "/proc/self/fd"}, {"/dev/stdin", "fd/0"}, {"/dev/stdout", "fd/1"}, {"/dev/stderr", "fd/2"},
	} {
		if err := os.Symlink(link.to, link.from); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return mountDisk("state", "/var/lib/reeve", 0)
}

func linkDisks(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob("/sys/block/*/serial")
	if err != nil {
		return err
	}
	for _, file := range files {
		serial, err := os.ReadFile(file)
		if err != nil || len(serial) == 0 {
			continue
		}
		name := "virtio-" + strings.TrimSpace(string(serial))
		if err := os.Symlink("../../"+filepath.Base(filepath.Dir(file)), filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return nil
}

func mount(kind, source, at string, flags uintptr, options string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, at, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s (%s) at %s: %w", source, kind, at, err)
	}
	return nil
}
