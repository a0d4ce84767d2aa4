package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// TestWhatIsDamage takes what the kernel refuses for damage only if it speaks of what is on the disk.
func TestWhatIsDamage(t *testing.T) {
	for err, want := range map[error]bool{
		wal.ErrCRCMismatch:                                         true,
		bolterrors.ErrInvalid:                                      true,
		fmt.Errorf("map: %w", syscall.ENOMEM):                      false,
		bolterrors.ErrTimeout:                                      false,
		errors.New("page 7: unexpected page type: a5"):             true,
		&fs.PathError{Op: "open", Path: "db", Err: syscall.EMFILE}: false,
		&fs.PathError{Op: "read", Path: "db", Err: syscall.EIO}:    true,
	} {
		if got := damages(err); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
}
