package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

// Check returns what Open would refuse of a node's directories, all of it, and changes nothing. What is not there yet counts as what Open would make.
func Check(layout Layout) (problems []error) {
	for _, path := range []string{layout.System, layout.Data, layout.Run} {
		at, err := Nearest(path)
		if err == nil {
			err = CheckWritable(at)
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	if os.Geteuid() != 0 {
		return problems
	}
	if err := searchable(layout.Data, layout.Run); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// Nearest returns the directory at a path or, if there is nothing, the nearest one above it. It fails if a file is in the way.
func Nearest(path string) (string, error) {
	for {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path):
			path = filepath.Dir(path)
		case err != nil:
			return "", fmt.Errorf("storage: %w", err)
		case !info.IsDir():
			return "", fmt.Errorf("storage: %s is not a directory: move it away, or give this node other directories", path)
		default:
			return path, nil
		}
	}
}

// Repair is what to do about a file system that takes no writes: after an error it takes none again before it was unmounted.
const Repair = "see the kernel's log, stop reeved, unmount the file system, repair it (fsck), mount it for writing, and start reeved"

// CheckWritable fails if the core cannot write in a directory. A directory that is encrypted and closed, or on a file system that cannot be asked this way, passes.
func CheckWritable(directory string) error {
	err := Probe(directory)
	for _, known := range []struct {
		number unix.Errno
		remedy string
	}{
		{unix.EROFS, "its file system is read-only: " + Repair},
		{unix.EIO, "its disk has errors: " + Repair},
		{unix.EUCLEAN, "its file system is damaged: " + Repair},
		{unix.ESHUTDOWN, "its file system was shut down after an error: " + Repair},
		{unix.EACCES, "give the directory to the user of reeved, or run reeved as root"},
		{unix.EPERM, "it is immutable (chattr -i) or belongs to another user"},
		{unix.ENOSPC, "its disk is full: free some space"},
		{unix.EDQUOT, "the quota of its user is used up: free some space"},
	} {
		if errors.Is(err, known.number) {
			return fmt.Errorf("storage: cannot write in %s (%w): %s", directory, err, known.remedy)
		}
	}
	return nil
}

// Probe makes a file without a name in a directory, writes to it and lets go of it. Nothing is left, whatever happens.
func Probe(directory string) (err error) {
	fd, err := eintr.Retry(func() (int, error) {
		return unix.Open(directory, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	_, err = eintr.Retry(func() (int, error) { return unix.Write(fd, []byte{0}) })
	return err
}
