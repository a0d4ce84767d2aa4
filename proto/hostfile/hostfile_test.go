package hostfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/hostfile"
)

// TestCheck: what the core would refuse is found without a write.
func TestCheck(t *testing.T) {
	write := func(path string) error { return os.WriteFile(path, []byte("127.0.0.1 localhost\n"), 0o644) }
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir, path string) error
		says    string // empty: nothing is wrong
		root    bool
	}{
		"a file":       {func(_ *testing.T, _, path string) error { return write(path) }, "", false},
		"none yet":     {func(*testing.T, string, string) error { return nil }, "", false},
		"no directory": {func(_ *testing.T, dir, _ string) error { return os.Remove(dir) }, "its directory does not exist: make", false},
		"a link": {func(t *testing.T, dir, path string) error {
			return errors.Join(write(filepath.Join(dir, "other")), os.Symlink("other", path))
		}, "symbolic link", false},
		"a hard link": {func(t *testing.T, dir, path string) error {
			return errors.Join(write(path), os.Link(path, filepath.Join(dir, "other")))
		}, "hard links", false},
		"too large": {func(_ *testing.T, _, path string) error {
			return errors.Join(write(path), os.Truncate(path, hostfile.MaxSize+1))
		}, "larger than 16 MiB", false},
		// Whoever runs it may bind low ports: CAP_NET_BIND_SERVICE, as setcap(8) writes it.
		"file capabilities": {func(_ *testing.T, _, path string) error {
			return errors.Join(write(path), unix.Setxattr(path, "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
		}, "file capabilities", true},
		"immutable": {func(t *testing.T, _, path string) error { return errors.Join(write(path), fix(t, path)) }, "immutable", true},
		"an immutable directory": {func(t *testing.T, dir, path string) error { return errors.Join(write(path), fix(t, dir)) },
			"its directory is immutable", true},
		"a directory that others may write": {func(t *testing.T, dir, path string) error { return errors.Join(write(path), os.Chmod(dir, 0o777)) },
			"run chmod go-w on the directory", false},
	} {
		t.Run(name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				t.Skip("this user cannot have it so")
			}
			dir := filepath.Join(t.TempDir(), "etc")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "hosts")
			if err := test.prepare(t, dir, path); err != nil {
				t.Skipf("this cannot be tested here: %v", err)
			}
			before, _ := os.ReadDir(dir)
			err := hostfile.Check(path)
			switch {
			case test.says == "" && err != nil:
				t.Error(err)
			case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), path)):
				t.Errorf("the refusal does not speak of %q and %s: %v", test.says, path, err)
			}
			if after, _ := os.ReadDir(dir); len(after) != len(before) {
				t.Errorf("the directory had %d files, and has %d", len(before), len(after))
			}
		})
	}
}

// fix makes a file immutable for as long as the test runs.
func fix(t *testing.T, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	t.Cleanup(func() { _ = errors.Join(set(0), file.Close()) })
	return set(unix.STATX_ATTR_IMMUTABLE)
}
