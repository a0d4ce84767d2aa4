package fscrypt_test

import (
	"bytes"
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
	for _, disk := range []string{"", "tmpfs"} {
		t.Run("disk "+disk, func(t *testing.T) {
			n := newNode(t, true)
			if disk != "" {
				must(t, unix.Mount("none", filepath.Join(n.dir, "system"), disk, 0, ""))
			}
			key, _ := newKey(t)
			kind := n.kind(nil)
			must(t, kind.Format(t.Context(), key))
			n.hasRoom(t, true)
			must(t, kind.Close(t.Context()))
			// What was given away since is taken again.
			file, err := os.OpenFile(n.file(), os.O_RDWR, 0)
			must(t, err)
			piece := make([]byte, 1<<20)
			at := int64(0)
			for ; ; at += int64(len(piece)) {
				if _, err := file.ReadAt(piece, at); err != nil {
					t.Fatalf("nothing in the image is zero: %v", err)
				}
				if bytes.Count(piece, []byte{0}) == len(piece) {
					break
				}
			}
			must(t, unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(len(piece))))
			must(t, file.Close())
			n.hasRoom(t, false)
			must(t, kind.Open(t.Context(), key))
			n.hasRoom(t, true)
			must(t, kind.Close(t.Context()))
		})
	}
}

func (n node) hasRoom(t *testing.T, want bool) {
	t.Helper()
	var info unix.Stat_t
	must(t, unix.Stat(n.file(), &info))
	if taken := info.Blocks * 512; taken >= info.Size != want {
		t.Errorf("the image of %d bytes has %d", info.Size, taken)
	}
}
