package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// TestRejoinNeedsRoom begins no join where the data that was put aside and the new member's do not fit on the disk together, and says where the former is.
func TestRejoinNeedsRoom(t *testing.T) {
	directory := t.TempDir()
	database := datadir.ToBackendFileName(filepath.Join(formerDirectory(directory), "etcd"))
	if err := errors.Join(os.MkdirAll(filepath.Dir(database), 0o700), os.WriteFile(database, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	need := int64(1<<20) + 2*wal.SegmentSizeBytes
	free := need - 1
	s := &Store{directory: directory, marker: &marker{Phase: joining, Former: "ab"}, freeSpace: func(string) (int64, int64, error) { return free, 0, nil }}
	if err := s.checkRejoin(); !errors.Is(err, ErrWaiting) || !strings.Contains(err.Error(), formerDirectory(directory)) {
		t.Errorf("too little room: %v", err)
	}
	free = need
	if err := s.checkRejoin(); err != nil {
		t.Errorf("enough room: %v", err)
	}
	free = 0
	s.marker.Former = ""
	if err := s.checkRejoin(); err != nil {
		t.Errorf("a member that joins in nobody's place: %v", err)
	}
}
