package rmtree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/rmtree"
)

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", path, err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := rmtree.Remove(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	gone(t, path)
}

func TestRemove(t *testing.T) {
	for name, fill := range inorder.Of(map[string]func(t *testing.T, path string){
		"nothing":         func(*testing.T, string) {},
		"a file":          write,
		"empty":           func(t *testing.T, path string) { mkdir(t, path) },
		"deep":            func(t *testing.T, path string) { mkdir(t, path); plugintest.Deep(t, path, 10_000) },
		"bushy":           bushy,
		"names of risen":  risenNames,
		"closed to owner": closed,
		"all kinds": func(t *testing.T, path string) {
			mkdir(t, path)
			for _, err := range []error{
				os.Symlink("/etc/passwd", filepath.Join(path, "link")),
				os.Symlink("nowhere", filepath.Join(path, "dangling")),
				os.Symlink(".", filepath.Join(path, "loop")),
				unix.Mkfifo(filepath.Join(path, "pipe"), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			write(t, filepath.Join(path, "\x1b[2J\n\xff"))
		},
	}) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(plugintest.Dir(t), "tree")
			fill(t, path)
			remove(t, path)
		})
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// bushy has many names in one directory, and directories of several levels beside each other.
func bushy(t *testing.T, path string) {
	mkdir(t, path)
	for n := range 5_000 {
		if err := syscall.Mknod(filepath.Join(path, fmt.Sprint("file", n)), syscall.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 100 {
		write(t, filepath.Join(path, fmt.Sprint("d", n), "e", "f", "g", "h", "file"))
		mkdir(t, filepath.Join(path, "d0", fmt.Sprint("e", n), "f", "g"))
	}
}

// risenNames has entries of the names under which directories are moved up: files, and directories that are not empty.
func risenNames(t *testing.T, path string) {
	for n := range 5 {
		write(t, filepath.Join(path, fmt.Sprint(".reeve-removed-", n), "a", "b", "file"))
	}
	write(t, filepath.Join(path, ".reeve-removed-5"))
	mkdir(t, filepath.Join(path, ".reeve-removed-6"))
	write(t, filepath.Join(path, "x", "y", "z", "file"))
}

// closed has directories that their owner can neither list, search nor write in.
func closed(t *testing.T, path string) {
	write(t, filepath.Join(path, "a", "b", "c", "d", "file"))
	for _, below := range []string{"a/b/c/d", "a/b/c", "a/b", "a", "."} {
		if err := os.Chmod(filepath.Join(path, below), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// The test needs no more file descriptors than a few, which is what bounds them.
func TestFewDescriptors(t *testing.T) {
	path := filepath.Join(plugintest.Dir(t), "tree")
	bushy(t, path)
	plugintest.Deep(t, path, 3000)
	var before, now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	now = before
	now.Cur = uint64(len(open) + 8)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	remove(t, path)
}

// What lies outside is neither entered nor changed, whatever leads there.
func TestStaysInside(t *testing.T) {
	dir := plugintest.Dir(t)
	outside := filepath.Join(dir, "outside")
	write(t, filepath.Join(outside, "a", "file"))
	path := filepath.Join(dir, "tree")
	mkdir(t, filepath.Join(path, "d"))
	for _, link := range []string{"link", "d/link"} {
		if err := os.Symlink(outside, filepath.Join(path, link)); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, path)
	// The tree itself may be a link.
	if err := os.Symlink(outside, path); err != nil {
		t.Fatal(err)
	}
	remove(t, path)
	if _, err := os.Stat(filepath.Join(outside, "a", "file")); err != nil {
		t.Error(err)
	}
}

// A mount is left, even one of the same file system, with what is in it; the rest goes.
func TestCrossesNoMount(t *testing.T) {
	dir := plugintest.Dir(t)
	outside, path := filepath.Join(dir, "outside"), filepath.Join(dir, "tree")
	write(t, filepath.Join(outside, "a", "file"))
	for _, below := range []string{"mount", "d/mount", "d/e/f/mount"} {
		at := filepath.Join(path, below)
		mkdir(t, at)
		if err := unix.Mount(outside, at, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("no bind mounts: %v", err)
		}
		// By what is held open: directories above it are moved.
		held, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(fmt.Sprintf("/proc/self/fd/%d", held.Fd()), unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
			_ = held.Close()
		})
	}
	write(t, filepath.Join(path, "d", "e", "file"))
	err := rmtree.Remove(t.Context(), path)
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), `"mount"`) {
		t.Errorf("error %v", err)
	}
	gone(t, filepath.Join(path, "d", "e"))
	if _, err := os.Stat(filepath.Join(outside, "a", "file")); err != nil {
		t.Error(err)
	}
}

func TestWhatIsLeft(t *testing.T) {
	dir := plugintest.Dir(t)
	name := strings.Repeat("n", 250)
	for n := range 10 {
		mkdir(t, filepath.Join(dir, "tree", fmt.Sprint(name, n), "below"))
		plugintest.Immutable(t, filepath.Join(dir, "tree", fmt.Sprint(name, n)))
	}
	write(t, filepath.Join(dir, "tree", "a", "b", "c"))
	err := rmtree.Empty(t.Context(), dir)
	if !errors.Is(err, unix.EPERM) || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "and 7 more") {
		t.Errorf("error %v", err)
	}
	gone(t, filepath.Join(dir, "tree", "a"))
}

func TestEmpty(t *testing.T) {
	dir := plugintest.Dir(t)
	write(t, filepath.Join(dir, "a", "b", "c"))
	write(t, filepath.Join(dir, "file"))
	for range 2 {
		if err := rmtree.Empty(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := rmtree.Empty(t.Context(), filepath.Join(dir, "absent")); err != nil {
		t.Error(err)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	path := filepath.Join(plugintest.Dir(t), "tree")
	write(t, filepath.Join(path, "a", "b", "c"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rmtree.Remove(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Somebody renames and makes directories meanwhile, and swaps them for links. Nothing outside suffers, and once he is gone all goes.
func TestAgainstAHostileProcess(t *testing.T) {
	dir := plugintest.Dir(t)
	outside, path := filepath.Join(dir, "outside"), filepath.Join(dir, "tree")
	write(t, filepath.Join(outside, "a", "b", "file"))
	mkdir(t, path)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for n := range 2 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				at := filepath.Join(path, fmt.Sprint(n, i%7))
				_ = os.MkdirAll(filepath.Join(at, "x", "y", "z"), 0o700)
				_ = os.Rename(filepath.Join(at, "x"), filepath.Join(path, fmt.Sprint("moved", i%5)))
				_ = os.Symlink(outside, filepath.Join(at, "x"))
				_ = os.Rename(filepath.Join(path, "moved0", "y"), filepath.Join(at, "w"))
				_ = os.Rename(filepath.Join(at, "x"), filepath.Join(path, ".reeve-removed-1"))
			}
		})
	}
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // he can go on for ever
		_ = rmtree.Remove(ctx, path)
		cancel()
	}
	close(stop)
	group.Wait()
	remove(t, path)
	if _, err := os.Stat(filepath.Join(outside, "a", "b", "file")); err != nil {
		t.Error(err)
	}
}
