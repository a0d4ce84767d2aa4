package usertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	directory = "/tmp/reeve-test-users"
	// No distribution gives these to accounts, and systemd gives them to nobody.
	first, last = 60706, 60999
)

// New returns a user and group ID that belong to this process, which is root, until it ends.
func New(t testing.TB) int {
	t.Helper()
	id, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Take is New for a process that is not the test itself.
func Take() (int, error) {
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, err
	}
	for id := first; id <= last; id++ {
		// The descriptor stays open, and is no child's.
		descriptor, err := unix.Open(filepath.Join(directory, fmt.Sprint(id)), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return 0, err
		}
		err = unix.Flock(descriptor, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return id, nil
		}
		if err := unix.Close(descriptor); err != nil {
			return 0, err
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("all users from %d to %d are taken", first, last)
}
