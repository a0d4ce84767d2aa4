package fscrypt_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// What is no secret may lie beside the encrypted directory: for the core alone, only while the volume is open, and what is used of it keeps the volume from being
// closed.
func TestClear(t *testing.T) {
	n := newNode(t, true)
	key, _ := newKey(t)
	kind := n.kind(nil)
	clear := kind.Describe().Clear
	if inDirectory := newNode(t, false).kind(nil).Describe().Clear; clear == "" || inDirectory != "" {
		t.Fatalf("the directory that is not encrypted: %q with an image, %q without", clear, inDirectory)
	}
	must(t, kind.Format(t.Context(), key))
	must(t, kind.Open(t.Context(), key))
	info, err := os.Stat(clear)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("its mode is %v", info.Mode())
	}
	marker := []byte("this is no secret, and is not encrypted")
	cat, err := os.ReadFile("/bin/cat")
	must(t, err)
	program := filepath.Join(clear, "program")
	must(t, os.WriteFile(program, append(cat, marker...), 0o700))
	secret := []byte("this is one, and is")
	must(t, os.WriteFile(filepath.Join(n.data(), "file"), secret, 0o600))
	if _, err := os.Stat(filepath.Join(n.data(), "program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is seen in the volume: %v", err)
	}

	// It is a cat: its first output says that it runs, and then it waits for its input.
	end := started(t, exec.Command(program, "/proc/self/comm", "-"))
	var busy *volume.BusyError
	if err := kind.Close(t.Context()); !errors.As(err, &busy) {
		t.Fatalf("closed although it is executed: %v", err)
	}
	if at := busy.Users[0]; at.Use != "executable" || at.Path != program || at.Command != "program" {
		t.Errorf("it is used by %+v", at)
	}
	wantState(t, kind, volume.Open)
	if content, err := os.ReadFile(filepath.Join(n.data(), "file")); err != nil || !bytes.Equal(content, secret) {
		t.Errorf("the volume that could not be closed has %q, %v", content, err)
	}
	end()
	must(t, kind.Close(t.Context()))
	wantState(t, kind, volume.Closed)
	if _, err := os.Stat(program); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after it was closed: %v", err)
	}
	unix.Sync()
	raw, err := os.ReadFile(n.file())
	must(t, err)
	if !bytes.Contains(raw, marker) || bytes.Contains(raw, secret) {
		t.Errorf("in the image: what is no secret %t, what is one %t", bytes.Contains(raw, marker), bytes.Contains(raw, secret))
	}
	must(t, kind.Open(t.Context(), key))
	if content, err := os.ReadFile(program); err != nil || !bytes.HasSuffix(content, marker) {
		t.Errorf("opened again: %d bytes, %v", len(content), err)
	}
	must(t, kind.Close(t.Context()))
}

// Whoever could write to the node's directories while the machine was off does not get the volume mounted over another directory, nor an image attached to which he
// can write below its file system.
func TestPreparedPlaces(t *testing.T) {
	n := newNode(t, true)
	key, _ := newKey(t)
	kind := n.kind(nil)
	must(t, kind.Format(t.Context(), key))
	mount, elsewhere := kind.Describe().Clear, t.TempDir()
	for _, test := range []struct {
		name             string
		prepare, restore func() error
		says             string
	}{
		{"a link in the place of the mount", func() error {
			return errors.Join(removeIfThere(mount), os.Symlink(elsewhere, mount))
		}, func() error { return os.Remove(mount) }, "a link"},
		{"a link in the place of the data", func() error {
			return errors.Join(removeIfThere(n.data()), os.Symlink(elsewhere, n.data()))
		}, func() error { return os.Remove(n.data()) }, "a link"},
		{"a mount that is not empty", func() error {
			return errors.Join(os.MkdirAll(mount, 0o700), os.WriteFile(filepath.Join(mount, "file"), nil, 0o600))
		}, func() error { return os.Remove(filepath.Join(mount, "file")) }, "not empty (there is file)"},
		{"a mount of another user", func() error {
			return errors.Join(os.MkdirAll(mount, 0o700), os.Chown(mount, 65534, 65534))
		}, func() error { return os.Chown(mount, 0, 0) }, "65534"},
		{"an image that others may write to", func() error { return os.Chmod(n.file(), 0o606) }, func() error { return os.Chmod(n.file(), 0o600) }, "chmod 600"},
		{"an image of another user", func() error { return os.Chown(n.file(), 65534, 0) }, func() error { return os.Chown(n.file(), 0, 0) }, "chown 0"},
		{"an image with another name", func() error { return os.Link(n.file(), n.file()+".other") }, func() error { return os.Remove(n.file() + ".other") }, "2 names"},
	} {
		t.Run(test.name, func(t *testing.T) {
			must(t, test.prepare())
			var damaged *volume.DamagedError
			err := kind.Open(t.Context(), key)
			if !errors.As(err, &damaged) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("opened: %v", err)
			}
			must(t, test.restore())
			if found, err := os.ReadDir(elsewhere); err != nil || len(found) != 0 {
				t.Errorf("elsewhere: %v, %v", found, err)
			}
			must(t, kind.Open(t.Context(), key))
			must(t, kind.Close(t.Context()))
		})
	}
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
