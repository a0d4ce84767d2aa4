package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// directory is where `ip netns` keeps namespaces by their names.
const directory = "/run/netns"

// In calls do in a namespace, on the caller's thread, so that a process which do starts is in it. It returns the error of do.
func In(name string, do func() error) error {
	target, err := open(name)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("the network namespace of this process: %w", err)
	}
	defer func() { _ = own.Close() }()
	runtime.LockOSThread()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace %s: %w", name, err)
	}
	failure := do()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		// The thread stays locked: nothing else may run in a namespace without knowing it.
		return errors.Join(failure, fmt.Errorf("leave the network namespace %s: %w", name, err))
	}
	runtime.UnlockOSThread()
	return failure
}

// open opens a namespace by its name. The error is fs.ErrNotExist if there is none.
func open(name string) (*os.File, error) {
	path := filepath.Join(directory, name)
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the network namespace %s: %w", name, err)
	}
	var found unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &found); err != nil || found.Type != unix.NSFS_MAGIC {
		_ = file.Close()
		// A file without a namespace is what one that made it left when it was killed.
		return nil, fmt.Errorf("%s is no network namespace: %w", path, fs.ErrNotExist)
	}
	return file, nil
}

// lock makes the directory of namespaces, as `ip netns` does, and holds its lock until what it returns is called.
func lock() (unlock func(), err error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("the directory of network namespaces: %w", err)
	}
	held, err := os.Open(directory)
	if err != nil {
		return nil, fmt.Errorf("the directory of network namespaces: %w", err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		_ = held.Close()
		return nil, fmt.Errorf("lock %s: %w", directory, err)
	}
	// Shared, so that what is removed here goes in every mount namespace, and no copy keeps a namespace alive.
	err = unix.Mount("", directory, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) {
		// It is no mount point yet.
		if err = unix.Mount(directory, directory, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", directory, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		_ = held.Close()
		return nil, fmt.Errorf("share %s: %w", directory, err)
	}
	return func() { _ = held.Close() }, nil
}

// add makes a namespace, with the lock held.
func add(name string) error {
	path := filepath.Join(directory, name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("the network namespace %s: %w", name, err)
	}
	if err := file.Close(); err != nil {
		return err
	}
	made := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine, since nothing else may run in the new namespace.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- err
			return
		}
		made <- unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
	}()
	if err := <-made; err != nil {
		return errors.Join(fmt.Errorf("make the network namespace %s: %w", name, err), os.Remove(path))
	}
	return nil
}

// remove removes a namespace, with the lock held; there need not be one. It lives on as long as a process is in it.
func remove(name string) error {
	path := filepath.Join(directory, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the network namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the network namespace %s: %w", name, err)
	}
	return nil
}
