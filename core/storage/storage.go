package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is the file in system/ and run/ that the running core holds locked.
const lockName = "lock"

// InUseError says that another core runs on the same directories.
type InUseError struct {
	// Lock is the file, or the data directory, that the other core holds locked.
	Lock string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("storage: another reeved runs on this directory (it holds %s): use that one, stop it first, or give this node other directories", e.Lock)
}

// Storage is the directories of a node, held by this core.
type Storage struct {
	Layout
	locks []*os.File
	// data is the data directory as it was seen when it was last taken; nil while it is not held.
	data *os.File
}

// shared is the mode of the directories that roles must be able to pass through. Where every role has the core's own user ID, nobody else has any business
// in there.
func shared() os.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// Open makes the node's directories and takes them for this core. *InUseError if another core has one of them; nothing is changed then.
// Directories that exist keep their content. As root, where every role has a user ID of its own, the roles must be able to pass through data/ and run/:
// *UnsearchableError if they cannot.
func Open(layout Layout) (*Storage, error) {
	s := &Storage{Layout: layout}
	// Each directory is locked by itself: whichever of them another node's parameters name by mistake, the second core is refused.
	take := []func() error{
		func() error { return s.take(layout.System, 0o700) },
		func() error {
			if err := makeDirectory(layout.Data, shared()); err != nil {
				return err
			}
			return s.holdData()
		},
		func() error { return s.take(layout.Run, shared()) },
		func() error { return chmod(layout.System, 0o700) },
		func() error { return chmod(layout.Data, shared()) },
		func() error { return chmod(layout.Run, shared()) },
	}
	if os.Geteuid() == 0 {
		take = append(take, func() error { return searchable(layout.Data) }, func() error { return searchable(layout.Run) })
	}
	for _, step := range take {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// makeDirectory makes a directory, unless it is there.
func makeDirectory(path string, mode os.FileMode) error {
	// Parents are everybody's way to the directory, so they are not as private as it is.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	switch err := os.Mkdir(path, mode); {
	case err == nil:
		return SyncDirectory(filepath.Dir(path))
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("storage: %w", err)
	}
	return nil
}

// take makes a directory, unless it is there, and locks it by a file in it.
func (s *Storage) take(path string, mode os.FileMode) error {
	if err := makeDirectory(path, mode); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	s.locks = append(s.locks, file)
	return lock(file)
}

func lock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &InUseError{Lock: file.Name()}
	}
	if err != nil {
		return fmt.Errorf("storage: lock %s: %w", file.Name(), err)
	}
	return nil
}

// HoldData takes the directory that is at Data now. It is called again after a volume was opened or closed, which puts another directory there. The directory
// itself is locked, since a file in it would keep it from being encrypted, and from being closed. *InUseError if another core has it.
func (s *Storage) HoldData() error {
	if err := s.holdData(); err != nil {
		return err
	}
	// Only now may anything of it be changed.
	return chmod(s.Data, shared())
}

func (s *Storage) holdData() error {
	file, err := os.OpenFile(s.Data, os.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if s.holds(file) {
		return file.Close()
	}
	if err := lock(file); err != nil {
		return errors.Join(err, file.Close())
	}
	before := s.data
	s.data = file
	if before == nil {
		return nil
	}
	return before.Close()
}

// chmod gives a directory its mode. One that has it is not touched: it may be on a file system that has become read-only.
func chmod(path string, mode os.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode {
		return nil
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	return nil
}

func (s *Storage) holds(file *os.File) bool {
	if s.data == nil {
		return false
	}
	now, errNow := file.Stat()
	held, errHeld := s.data.Stat()
	return errNow == nil && errHeld == nil && os.SameFile(now, held)
}

// WithoutData calls a function while Data is not held, and takes what is there afterwards, whether the function failed or not: a directory that somebody has
// open, be it the core, cannot be closed. system/ and run/ stay held, so no other core takes this node meanwhile.
func (s *Storage) WithoutData(do func() error) error {
	if err := s.releaseData(); err != nil {
		return err
	}
	return errors.Join(do(), s.HoldData())
}

func (s *Storage) releaseData() error {
	if s.data == nil {
		return nil
	}
	held := s.data
	s.data = nil
	if err := held.Close(); err != nil {
		return fmt.Errorf("storage: give back %s: %w", s.Data, err)
	}
	return nil
}

// UnsearchableError says that the roles' user IDs cannot reach a directory of the node.
type UnsearchableError struct {
	// Path is the node's directory, Parent the one on the way that is closed.
	Path, Parent string
}

func (e *UnsearchableError) Error() string {
	return fmt.Sprintf("storage: roles run under user IDs of their own, and those cannot pass through %s to %s: say `chmod o+x %s`, or put the directory elsewhere", e.Parent, e.Path, e.Parent)
}

func searchable(path string) error {
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return &UnsearchableError{Path: path, Parent: parent}
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// Close gives the directories back.
func (s *Storage) Close() error {
	problems := []error{s.releaseData()}
	for _, lock := range s.locks {
		problems = append(problems, lock.Close())
	}
	return errors.Join(problems...)
}
