package target_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/archive/internal/target"
	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/proto/snapshot/snapshottest"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

const node = "reeve-1"

func named(number uint64) snapshot.Name {
	return snapshot.Name{Number: number, Asked: time.Date(2026, 11, 28, 18, 0, 0, 0, time.UTC)}
}

// wantError fails the test unless an error has all of the texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, want it to say %q", err, text)
		}
	}
}

func TestDirectory(t *testing.T) {
	parent := t.TempDir()
	d := target.NewDirectory(parent, node, "")
	if found, err := d.List(t.Context()); err != nil || len(found) != 0 {
		t.Fatalf("%v, %v", found, err)
	}
	file := string(append(snapshottest.Rehearsed(t, []byte("hello")).Marshal(), "hello"...))
	for number := range uint64(3) {
		if err := d.Put(t.Context(), named(number+1), int64(len(file)), strings.NewReader(file)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(parent, node, "20261128T180000Z-1.snapshot")
	if content, err := os.ReadFile(path); err != nil || string(content) != file {
		t.Errorf("%q, %v", content, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	// What others have put there, and what an earlier process did not finish.
	for name, content := range map[string]string{
		"draft": "other", "notes.txt": "other", "20261128T180000Z-4": file, "old.snapshot": file,
		// These are damaged: nobody has written so many bytes, and the header says so.
		"20261128T180000Z-6.snapshot": file[:len(file)-1], "20261128T180000Z-7.snapshot": "other",
	} {
		if err := os.WriteFile(filepath.Join(parent, node, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("notes.txt", filepath.Join(parent, node, "20261128T180000Z-5.snapshot")); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context(), named(2)); err != nil {
		t.Error(err)
	}
	if err := d.Remove(t.Context(), named(2)); err != nil {
		t.Errorf("once more: %v", err)
	}
	if found, err := d.List(t.Context()); err != nil || len(found) != 2 || found[named(1)] != int64(len(file)) || found[named(3)] != int64(len(file)) {
		t.Errorf("%v, %v", found, err)
	}
	entries, err := os.ReadDir(filepath.Join(parent, node))
	if err != nil || len(entries) != 8 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestDirectoryFails holds that a copy which is not complete has no name, and that the reason says what to do.
func TestDirectoryFails(t *testing.T) {
	parent := t.TempDir()
	d := target.NewDirectory(parent, node, "")
	if _, err := d.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the curator is gone")
	for name, from := range map[string]io.Reader{
		"a reader that fails": io.MultiReader(strings.NewReader("hel"), iotest.ErrReader(lost)), "one that ends": strings.NewReader("hel"),
	} {
		if err := d.Put(t.Context(), named(1), 5, from); err == nil {
			t.Errorf("%s: a copy was made", name)
		}
	}
	wantError(t, d.Put(t.Context(), named(1), 5, iotest.ErrReader(unix.ENOSPC)), "make room there, or keep fewer copies")
	wantError(t, d.Put(t.Context(), named(1), 5, iotest.ErrReader(unix.EROFS)), "mount it for writing")
	wantError(t, d.Put(t.Context(), named(1), 5, iotest.ErrReader(unix.EACCES)), "see that its file system was mounted", "run `install -d -m 700 -o ", parent+"/"+node+"`")
	wantError(t, d.Put(t.Context(), named(1), 1<<60, iotest.ErrReader(lost)), "no space left on device", " bytes are missing: make room there")
	if entries, err := os.ReadDir(filepath.Join(parent, node)); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
	gone := filepath.Join(parent, "gone")
	_, err := target.NewDirectory(gone, node, "").List(t.Context())
	wantError(t, err, "make "+gone+", or mount what belongs there")
	if _, err := os.Stat(gone); err == nil {
		t.Error("a directory was made where a file system was to be mounted")
	}
}

// TestDirectoryIsNotMounted holds that a directory on the node's own disk is not taken for one of a file system that is mounted there.
func TestDirectoryIsNotMounted(t *testing.T) {
	parent := t.TempDir()
	_, err := target.NewDirectory(parent, node, t.TempDir()).List(t.Context())
	wantError(t, err, "no other file system is mounted at "+parent+": mount it", `set "sameDisk": true`)
	if _, err := os.Stat(filepath.Join(parent, node)); err == nil {
		t.Error("a directory was made where a file system was to be mounted")
	}
	// The node's data may be on a volume of its own, and the directory on the machine's disk.
	_, err = target.NewDirectory("/", node, "/proc").List(t.Context())
	wantError(t, err, "no other file system is mounted at /: mount it")
	// Another file system, in which nobody makes a directory.
	_, err = target.NewDirectory("/proc", node, parent).List(t.Context())
	wantError(t, err, "cannot make the directory /proc/"+node)
}
