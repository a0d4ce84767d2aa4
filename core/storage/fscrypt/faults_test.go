package fscrypt_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/storage/fscrypt"
	"github.com/reeveproject/reeve/core/storage/volume"
)

func TestTooSmall(t *testing.T) {
	n := newNode(t, true)
	key, _ := newKey(t)
	n.size = fscrypt.MinSize - 1
	var small *fscrypt.SizeError
	if err := n.kind(nil).Format(t.Context(), key); !errors.As(err, &small) || small.Least != fscrypt.MinSize {
		t.Fatalf("a small image: %v", err)
	}
	n.size = fscrypt.MinSize
	// A disk without room for it, and one that looks as if it had room.
	mountAt := func(bytes string) {
		unmountAll(t, filepath.Dir(n.file()))
		run(t, "mount", "-t", "tmpfs", "-o", "size="+bytes, "none", filepath.Dir(n.file()))
	}
	mountAt("1M")
	if err := n.kind(nil).Format(t.Context(), key); !errors.As(err, &small) || small.Left < 0 || !strings.Contains(err.Error(), "full") {
		t.Fatalf("an image on a full disk: %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(n.file()))
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	mountAt("300M")
	must(t, n.kind(nil).Format(t.Context(), key))
	wantState(t, n.kind(nil), volume.Closed)
}

func TestElsewhere(t *testing.T) {
	n := newNode(t, true)
	key, _ := newKey(t)
	kind := n.kind(nil)
	must(t, kind.Format(t.Context(), key))
	device := run(t, "losetup", "--find", "--show", n.file())
	detached := false
	detach := func() {
		if !detached {
			detached = true
			run(t, "losetup", "--detach", device)
			// The kernel waits with it while a process that has just been started in mounts of its own still has the device.
			for backing := filepath.Join("/sys/block", filepath.Base(device), "loop", "backing_file"); ; time.Sleep(time.Millisecond) {
				if path, err := os.ReadFile(backing); err != nil || strings.TrimSpace(string(path)) != n.file() {
					break
				}
			}
		}
	}
	t.Cleanup(detach)
	var attached *fscrypt.AttachedError
	if err := kind.Open(t.Context(), key); !errors.As(err, &attached) || attached.Device != device || len(attached.Mounts) > 0 {
		t.Fatalf("opened though attached elsewhere: %v", err)
	}
	other := filepath.Join(n.dir, "other")
	must(t, os.Mkdir(other, 0o700))
	run(t, "mount", device, other)
	if err := kind.Open(t.Context(), key); !errors.As(err, &attached) || len(attached.Mounts) != 1 || attached.Mounts[0] != other {
		t.Fatalf("opened though mounted elsewhere: %v", err)
	}
	run(t, "umount", other)
	detach()
	// Another node on the same image, which is open.
	must(t, kind.Open(t.Context(), key))
	second := node{dir: filepath.Join(n.dir, "second"), image: true}
	for _, path := range []string{second.dir, filepath.Dir(second.file()), second.data()} {
		must(t, os.Mkdir(path, 0o700))
	}
	must(t, os.Link(n.file(), second.file()))
	if err := second.kind(nil).Open(t.Context(), key); !errors.As(err, &attached) {
		t.Fatalf("opened by two nodes: %v", err)
	}
	must(t, kind.Close(t.Context()))
}

func TestDamagedImage(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, path string)
		want   string
	}{
		"truncated":   {func(t *testing.T, path string) { must(t, os.Truncate(path, fscrypt.MinSize/2)) }, "truncated"},
		"almost gone": {func(t *testing.T, path string) { must(t, os.Truncate(path, 1100)) }, "superblock"},
		"empty":       {func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, "superblock"},
		"no file system": {func(t *testing.T, path string) {
			must(t, os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o600))
		}, "no ext4"},
		"without encryption": {func(t *testing.T, path string) { run(t, "mkfs.ext4", "-q", "-F", path) }, "has no encryption"},
		"another's":          {func(t *testing.T, path string) { run(t, "mkfs.ext4", "-q", "-F", "-O", "encrypt", path) }, "volume"},
		"damaged superblock": {func(t *testing.T, path string) {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			must(t, err)
			_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, 16), 1024+0x60)
			must(t, errors.Join(err, file.Close()))
		}, "cannot be mounted"},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, true)
			key, _ := newKey(t)
			kind := n.kind(nil)
			must(t, kind.Format(t.Context(), key))
			test.damage(t, n.file())
			before, err := os.Stat(n.file())
			must(t, err)
			err = kind.Open(t.Context(), key)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), filepath.Dir(n.file())) {
				t.Errorf("opened: %v, want an error that says %q", err, test.want)
			}
			if err := kind.Format(t.Context(), key); err == nil {
				t.Error("formatted again")
			}
			after, err := os.Stat(n.file())
			if err != nil || after.Size() != before.Size() {
				t.Errorf("changed: %v, %v", after, err)
			}
			must(t, kind.Close(t.Context()))
			if mount, err := volume.MountAt(n.mount()); err != nil || mount != nil {
				t.Errorf("left mounted: %+v, %v", mount, err)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		n := newNode(t, true)
		key, _ := newKey(t)
		var damaged *volume.DamagedError
		if err := n.kind(nil).Open(t.Context(), key); !errors.As(err, &damaged) || damaged.Location != n.file() {
			t.Errorf("opened: %v", err)
		}
	})
}

func TestNoLoopDevices(t *testing.T) {
	n := newNode(t, true)
	key, raw := newKey(t)
	must(t, n.kind(nil).Format(t.Context(), key))
	for action, want := range map[string]string{"no-loop": "modprobe loop", "no-device": "in use"} {
		output, err := n.call(t, action, hexOf(raw), 0, func(command *exec.Cmd) {
			command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		})
		if err != nil || !strings.Contains(output, want) {
			t.Errorf("%s: %q, %v", action, output, err)
		}
	}
	must(t, n.kind(nil).Open(t.Context(), key))
	must(t, n.kind(nil).Close(t.Context()))
}

func TestWithoutEncryption(t *testing.T) {
	n := newNode(t, true)
	mountNew(t, n.dir, false)
	n.image = false
	must(t, os.Mkdir(n.data(), 0o700))
	key, _ := newKey(t)
	var unsupported *fscrypt.UnsupportedError
	err := n.kind(nil).Format(t.Context(), key)
	if !errors.As(err, &unsupported) || unsupported.Type != "ext4" || !strings.Contains(err.Error(), "tune2fs -O encrypt /dev/loop") {
		t.Fatalf("encrypted: %v", err)
	}
	if _, err := n.kind(nil).State(t.Context()); !errors.As(err, &unsupported) {
		t.Fatalf("state: %v", err)
	}
	// The way out works.
	run(t, "tune2fs", "-O", "encrypt", unsupported.Source)
	must(t, n.kind(nil).Format(t.Context(), key))
	wantState(t, n.kind(nil), volume.Closed)
}

func TestOrdinaryUser(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/tmp", "reeve-fscrypt-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	executable := filepath.Join(dir, "test")
	own, err := os.Executable()
	must(t, err)
	run(t, "cp", own, executable)
	_, raw := newKey(t)
	for _, image := range []bool{true, false} {
		n := node{dir: dir, image: image}
		for _, action := range []string{"format", "open", "close"} {
			_, err := n.call(t, action, hexOf(raw), 0, func(command *exec.Cmd) {
				ordinary(command)
				command.Path, command.Dir = executable, "/"
			})
			if err == nil || !strings.Contains(err.Error(), "needs root") {
				t.Errorf("%s: %v", action, err)
			}
		}
	}
}
