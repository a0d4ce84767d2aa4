package machine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
)

func mount(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return unix.Mount("test", path, "tmpfs", 0, "")
}

// mounts are the mount points in a directory.
func mounts(t *testing.T, below string) []string {
	t.Helper()
	found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(below))
	if err != nil {
		t.Error(err)
	}
	var paths []string
	for _, info := range found {
		paths = append(paths, info.Mountpoint)
	}
	return paths
}

func TestUnmount(t *testing.T) {
	directory := t.TempDir()
	apart(t, unix.CLONE_NEWNS, func() error {
		ours, link := filepath.Join(directory, "ours"), filepath.Join(directory, "link")
		others := []string{ours, filepath.Join(directory, "ours too"), filepath.Join(directory, "others")}
		for _, path := range append(others,
			filepath.Join(ours, "pod"), filepath.Join(ours, "pod", "vol ume"), filepath.Join(ours, "pod", "vol ume", "below"), filepath.Join(ours, "twice"), filepath.Join(ours, "twice"),
		) {
			if err := mount(path); err != nil {
				return err
			}
		}
		if err := os.Symlink(ours, link); err != nil {
			return err
		}
		if err := machine.Unmount(t.Context(), link, filepath.Join(directory, "not there")); err != nil {
			return err
		}
		left := mounts(t, directory)
		for _, path := range left {
			if !slices.Contains(others, path) {
				t.Errorf("there is left %s of %v", path, left)
			}
		}
		for _, path := range others {
			if !slices.Contains(left, path) {
				t.Errorf("%s is gone", path)
			}
		}
		return nil
	})
}

// TestUnmountHidden: what lies beneath a mount that is none of those to unmount is said.
func TestUnmountHidden(t *testing.T) {
	directory := t.TempDir()
	apart(t, unix.CLONE_NEWNS, func() error {
		ours := filepath.Join(directory, "ours")
		if err := errors.Join(mount(filepath.Join(ours, "below")), mount(ours)); err != nil {
			return err
		}
		for _, ctx := range []context.Context{t.Context(), cancelled()} {
			if err := machine.Unmount(ctx, ours); err == nil || !strings.Contains(err.Error(), filepath.Join(ours, "below")) {
				t.Errorf("it says %v", err)
			}
		}
		return nil
	})
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestUnmountInUse: what is in use is waited for, then detached, and that is said.
func TestUnmountInUse(t *testing.T) {
	directory := t.TempDir()
	apart(t, unix.CLONE_NEWNS, func() error {
		used, free := filepath.Join(directory, "used"), filepath.Join(directory, "free")
		if err := errors.Join(mount(used), mount(free)); err != nil {
			return err
		}
		file, err := os.Create(filepath.Join(used, "file"))
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		var detached *machine.DetachedError
		if err := machine.Unmount(cancelled(), directory); !errors.As(err, &detached) || !slices.Equal(detached.Paths, []string{used}) {
			t.Errorf("it says %v", err)
		}
		if left := mounts(t, directory); len(left) > 0 {
			t.Errorf("there is left %v", left)
		}
		if _, err := file.WriteString("it is in use"); err != nil {
			t.Error(err)
		}
		return nil
	})
}

// TestUnmountWaits: a mount that is soon in use no more is unmounted.
func TestUnmountWaits(t *testing.T) {
	directory := t.TempDir()
	apart(t, unix.CLONE_NEWNS, func() error {
		used := filepath.Join(directory, "used")
		if err := mount(used); err != nil {
			return err
		}
		file, err := os.Create(filepath.Join(used, "file"))
		if err != nil {
			return err
		}
		closed := make(chan error, 1)
		go func() { closed <- file.Close() }() // now, or while it is tried
		err = machine.Unmount(t.Context(), directory)
		// On a busy machine the file may be closed too late.
		var detached *machine.DetachedError
		if errors.As(err, &detached) {
			err = nil
		}
		return errors.Join(err, <-closed)
	})
}

func TestUnmountRefuses(t *testing.T) {
	for _, directory := range []string{"", "/", "relative", "//"} {
		if err := machine.Unmount(t.Context(), directory); err == nil {
			t.Errorf("everything below %q was unmounted", directory)
		}
	}
}
