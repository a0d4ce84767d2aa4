package fscrypt_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
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

	end := started(t, shell("echo; exec "+program))
	var busy *volume.BusyError
	for {
		if err := kind.Close(t.Context()); !errors.As(err, &busy) {
			t.Fatalf("closed although it is executed: %v", err)
		}
		// The shell may not have become the program yet.
		if at := busy.Users[0]; at.Use == "executable" && at.Path == program && at.Command == "program" {
			break
		}
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
