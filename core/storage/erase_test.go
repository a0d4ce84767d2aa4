package storage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/core/storage"
)

// What a document replaces, and what is erased, is nowhere on the disk any more: who still holds the file sees zeros.
func TestErase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	hold := func() *os.File {
		t.Helper()
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	zeros := func(what string, file *os.File) {
		t.Helper()
		content := make([]byte, 1<<10)
		n, err := file.ReadAt(content, 0)
		if n == 0 || bytes.Trim(content[:n], "\x00") != nil && len(bytes.Trim(content[:n], "\x00")) > 0 {
			t.Errorf("%s: %d bytes, %v: %q", what, n, err, content[:n])
		}
	}
	if err := storage.WriteDocument(path, 1, "the first key", 0o400); err != nil {
		t.Fatal(err)
	}
	first := hold()
	if err := storage.WriteDocument(path, 1, "the second key, which is longer", 0o400); err != nil {
		t.Fatal(err)
	}
	zeros("replaced", first)
	var content string
	if err := storage.ReadDocument(path, 1, &content); err != nil || content != "the second key, which is longer" {
		t.Errorf("the new document: %q, %v", content, err)
	}
	second := hold()
	for range 2 {
		if err := storage.Erase(path); err != nil {
			t.Fatal(err)
		}
	}
	zeros("erased", second)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	// A draft that was left behind goes the same way.
	draft := filepath.Join(filepath.Dir(path), ".keys.json123")
	if err := os.WriteFile(draft, []byte("the key that was to come"), 0o400); err != nil {
		t.Fatal(err)
	}
	left, err := os.Open(draft)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = left.Close() }()
	if err := storage.RemoveDrafts(path); err != nil {
		t.Fatal(err)
	}
	zeros("a draft", left)
}

// What is kept under another name, as an unreadable configuration is, stays what it was.
func TestEraseKeepsOtherNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	kept := path + ".unreadable"
	if err := storage.WriteDocument(path, 1, "what may still be of use", 0o400); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stays := func(after string) {
		t.Helper()
		if content, err := os.ReadFile(kept); err != nil || !bytes.Equal(content, before) {
			t.Errorf("%s: %q, %v", after, content, err)
		}
	}
	if err := os.Link(path, kept); err != nil {
		t.Skipf("cannot run: there are no links here: %v", err)
	}
	if err := storage.WriteDocument(path, 1, "another", 0o400); err != nil {
		t.Fatal(err)
	}
	stays("replaced")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(kept, path); err != nil {
		t.Fatal(err)
	}
	if err := storage.Erase(path); err != nil {
		t.Fatal(err)
	}
	stays("erased")
}
