package storage_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
)

// note is the content of a document.
type note struct {
	Text  string `json:"text"`
	Bytes []byte `json:"bytes,omitempty"`
}

func writeNote(t testing.TB) (path string, good []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "note.json")
	if err := storage.WriteDocument(path, 3, note{Text: "a <b> & ü", Bytes: []byte{1, 2}}, 0o600); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, good
}

func reopen(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// rewrite replaces the content of an open file. It is not truncated first, which has some file systems write to the disk every time.
func rewrite(t testing.TB, file *os.File, content []byte) {
	t.Helper()
	_, err := file.WriteAt(content, 0)
	if err := errors.Join(err, file.Truncate(int64(len(content)))); err != nil {
		t.Fatal(err)
	}
}

// A document is read exactly as it was written, or not at all.
func TestDocument(t *testing.T) {
	path, good := writeNote(t)
	var got note
	if err := storage.ReadDocument(path, 3, &got); err != nil || got.Text != "a <b> & ü" || !bytes.Equal(got.Bytes, []byte{1, 2}) {
		t.Fatalf("%+v, %v", got, err)
	}
	file := reopen(t, path)
	refuse := func(what string, content []byte, says string) {
		t.Helper()
		rewrite(t, file, content)
		got := note{}
		if err := storage.ReadDocument(path, 3, &got); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), path) {
			t.Fatalf("%s: %+v, %v", what, got, err)
		}
	}
	for i := range good {
		refuse("cut off", good[:i], "damaged")
		for bit := range 8 {
			flipped := bytes.Clone(good)
			flipped[i] ^= 1 << bit
			refuse("a flipped bit", flipped, "")
		}
	}
	refuse("longer", append(bytes.Clone(good), ' '), "damaged")
	refuse("compact", []byte(strings.Join(strings.Fields(string(good)), "")), "damaged")
	refuse("more in it", bytes.Replace(good, []byte(`"text"`), []byte(`"more": 1, "text"`), 1), "damaged")
	refuse("huge", bytes.Repeat([]byte(" "), 1<<21), "small")
	refuse("newer", []byte(`{"version": 4, "whatever": true}`), "version 4")
	var version *storage.VersionError
	if err := storage.ReadDocument(path, 3, &got); !errors.As(err, &version) || version.Found != 4 || version.Known != 3 {
		t.Errorf("newer: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := storage.ReadDocument(path, 3, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := storage.ReadDocument(path, 3, &got); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pipe: %v", err)
	}
	if err := storage.WriteDocument(path, 3, make(chan int), 0o600); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("what cannot be encoded: %v", err)
	}
}

// A draft that a killed WriteFile has left is removed, and nothing else is.
func TestRemoveDrafts(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "a[b].json")
	stays := []string{"a[b].json", ".a[b].json", ".a[b].json12x", ".ab.json12", "a[b].json12", ".a[b].jso12"}
	for _, name := range append([]string{".a[b].json12", ".a[b].json3456789"}, stays...) {
		if err := os.WriteFile(filepath.Join(directory, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(directory, ".a[b].json13"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := storage.RemoveDrafts(path); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != len(stays)+1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	for _, name := range stays {
		if _, err := os.Stat(filepath.Join(directory, name)); err != nil {
			t.Error(err)
		}
	}
	if err := storage.RemoveDrafts(filepath.Join(directory, "away", "x")); err == nil {
		t.Error("no error where there is no directory")
	}
}

// Whatever is in the file, a document is exactly what was written or an error.
func FuzzDocument(f *testing.F) {
	path, good := writeNote(f)
	file := reopen(f, path)
	f.Add(good)
	f.Add([]byte(`{"version":3,"sum":"","content":{"text":""}}`))
	f.Add([]byte(`{"version":3,"content":null}`))
	f.Add([]byte(`{"version":99999999999999999999}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		rewrite(t, file, content)
		var got note
		if err := storage.ReadDocument(path, 3, &got); err != nil {
			return
		}
		again := filepath.Join(t.TempDir(), "again.json")
		if err := storage.WriteDocument(again, 3, got, 0o600); err != nil {
			t.Fatal(err)
		}
		if written, err := os.ReadFile(again); err != nil || !bytes.Equal(written, content) {
			t.Errorf("%q is read, and written as %q (%v)", content, written, err)
		}
	})
}
