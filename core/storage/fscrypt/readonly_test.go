package fscrypt_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// A file system that met an error becomes read-only. The volume on it is closed all the same, and can be written to when it is opened again.
func TestReadOnly(t *testing.T) {
	needRoot(t)
	n := newNode(t, true)
	key, _ := newKey(t)
	kind := n.kind(nil)
	must(t, kind.Format(t.Context(), key))
	must(t, kind.Open(t.Context(), key))
	path := filepath.Join(n.data(), "kept")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	must(t, unix.Mount("", n.mount(), "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""))
	if err := os.WriteFile(path, []byte("y"), 0o600); err == nil {
		t.Fatal("it is not read-only")
	}
	must(t, kind.Close(t.Context()))
	wantState(t, kind, volume.Closed)
	if _, err := os.Stat(path); err == nil {
		t.Error("a name can be read after closing")
	}
	must(t, kind.Open(t.Context(), key))
	must(t, os.WriteFile(path, []byte("z"), 0o600))
	must(t, kind.Close(t.Context()))
}

// The room of an image is taken when it is made: a disk that fills up later does not touch it.
func TestRoomIsTaken(t *testing.T) {
	needRoot(t)
	n := newNode(t, true)
	key, _ := newKey(t)
	must(t, n.kind(nil).Format(t.Context(), key))
	var info unix.Stat_t
	must(t, unix.Stat(n.file(), &info))
	if taken := info.Blocks * 512; taken < info.Size {
		t.Errorf("the image of %d bytes has %d", info.Size, taken)
	}
}
