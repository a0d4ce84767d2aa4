package target_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
)

// mounted mounts a file system at a new directory until the test ends.
func mounted(t *testing.T, source, kind string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root can mount")
	}
	at := t.TempDir()
	if err := unix.Mount(source, at, kind, 0, ""); err != nil {
		t.Skipf("cannot run: this machine mounts no %s: %v", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// A copy on another file system is one, also if it has got the number that the original has there.
func TestCopyOnAnotherFileSystem(t *testing.T) {
	one, other := filepath.Join(mounted(t, "none", "tmpfs"), "dev"), filepath.Join(mounted(t, "none", "tmpfs"), "dev")
	for _, dir := range []string{one, other} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		inode, err := target.Inode(one)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("directories: {system: %s/system}\n", one)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "reeved.yaml"), []byte(text), 0o644), os.WriteFile(filepath.Join(dir, target.PlaceName), []byte(inode+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	a, errA := target.Inode(one)
	b, errB := target.Inode(other)
	if err := errors.Join(errA, errB); err != nil || a != b {
		t.Fatalf("the numbers are %s and %s, %v: this test is for the same number", a, b, err)
	}
	if err := target.CheckCopy(other); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "is a copy of the dev directory "+one) {
		t.Errorf("%v", err)
	}
	if err := target.CheckCopy(one); err != nil {
		t.Errorf("the original: %v", err)
	}
	// Without the original it counts as moved.
	if err := os.RemoveAll(one); err != nil {
		t.Fatal(err)
	}
	if former, copied := target.Former(other); former != one || copied {
		t.Errorf("%q, %v", former, copied)
	}
}

// Who holds a directory is found on btrfs as well, where the list of locks names another device than stat.
func TestHolderOnBtrfs(t *testing.T) {
	program, err := exec.LookPath("mkfs.btrfs")
	if err != nil {
		t.Skip("cannot run: mkfs.btrfs is not installed (apt-get install btrfs-progs)")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 256<<20)); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), program, "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	device, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Skipf("cannot run: there is no loop device: %v", err)
	}
	loop := strings.TrimSpace(string(device))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", loop).Run() })
	dir := mounted(t, loop, "btrfs")
	if err := os.Mkdir(filepath.Join(dir, "system"), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "system", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if pid, held := target.Holder(dir); held {
		t.Errorf("process %d holds it", pid)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if pid, held := target.Holder(dir); !held || pid != os.Getpid() {
		t.Errorf("process %d holds it (%v)", pid, held)
	}
}
