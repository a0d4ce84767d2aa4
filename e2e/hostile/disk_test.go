package hostile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// diskSize is room for the executables of all plugins, for the store and its log with what a role may have in it, and for a little more.
const diskSize = 2 << 30

// mountImage mounts a new file system in a file: a role that fills it has filled all that the node has, and the machine has lost nothing.
func mountImage(t *testing.T, path string) {
	t.Helper()
	image := path + ".img"
	file, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(diskSize); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-N", "20000", image}, {"mount", "-o", "loop", image, path}} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("cannot run: this root cannot make a disk to fill: %v: %s", err, output)
		}
	}
	t.Cleanup(func() {
		// Lazily: a process that is left is what the test says, and not a mount.
		if output, err := exec.Command("umount", "-l", path).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
		_ = os.Remove(image)
	})
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// newMemory mounts a tmpfs, as a node's run directory is in on every machine, as far as the user can.
func newMemory(t *testing.T, path string) string {
	t.Helper()
	if !isRoot() {
		return path
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", path, "tmpfs", 0, "size=2g,mode=755"); err != nil {
		t.Skipf("cannot run: this root may not mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path + "/r"
}

// newDisk mounts a small disk of its own, as far as the user can; otherwise it is a directory.
func newDisk(t *testing.T) string {
	t.Helper()
	for n := 0; ; n++ {
		path := filepath.Join(suite.base, strconv.Itoa(n))
		if err := os.Mkdir(path, 0o755); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if isRoot() {
			mountImage(t, path)
		}
		return path
	}
}

// free is the room that is left on a disk, in bytes, and in files.
func free(t *testing.T, path string) (room, files uint64) {
	t.Helper()
	var found unix.Statfs_t
	if err := unix.Statfs(path, &found); err != nil {
		t.Fatal(err)
	}
	return found.Bavail * uint64(found.Bsize), found.Ffree
}
