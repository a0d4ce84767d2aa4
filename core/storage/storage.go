package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/passage"
)

// lockName is the lock file in system/ and run/.
const lockName = "lock"

// ownerName is a link in run/ to the dev directory whose it is, if it is one's: the commands of `reeve dev` remove a run directory by it when that is gone.
const ownerName = "of"

// InUseError says that another core uses the same directories.
type InUseError struct {
	// Lock is the file or data directory that the other core has locked.
	Lock string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("storage: another reeved uses this directory (it holds the lock %s): use that one, stop it, or give this node other directories", e.Lock)
}

// Storage holds a node's directories for this core.
type Storage struct {
	Layout
	// system and run are the open and locked lock files. mending guards run, which MendRun changes.
	system, run *os.File
	mending     sync.Mutex
	// data is the open and locked data directory; nil while it is released.
	data *os.File
	// owner is where the link ownerName went; empty: there was none.
	owner string
}

// shared is the mode of directories that roles must be able to enter. Where every role has the core's own user ID, nobody else needs access.
func shared() os.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// Open makes the node's directories and locks them. Existing directories keep their content. It returns *InUseError, and changes nothing, if another
// core holds one of them. As root, every role has its own user ID and must be able to enter data/ and run/: *UnsearchableError if it cannot.
func Open(layout Layout) (*Storage, error) {
	s := &Storage{Layout: layout}
	// Each directory has its own lock. So a second core is refused whichever of them its parameters name by mistake.
	take := []func() error{
		func() (err error) {
			s.system, err = take(layout.System, 0o700)
			return err
		},
		func() error {
			if err := MakeDirectories(layout.Data, shared()); err != nil {
				return err
			}
			return s.holdData()
		},
		func() (err error) {
			s.run, err = take(layout.Run, shared())
			return err
		},
		func() error { return chmod(layout.System, 0o700) },
		func() error { return chmod(layout.Data, shared()) },
		func() error { return chmod(layout.Run, shared()) },
	}
	if os.Geteuid() == 0 {
		take = append(take, func() error { return searchable(layout.Data, layout.Run) })
	}
	for _, step := range take {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.owner, _ = os.Readlink(filepath.Join(layout.Run, ownerName))
	return s, nil
}

// MakeDirectories is MakeDirectory with the parents, through which everybody may pass.
func MakeDirectories(path string, mode os.FileMode) error {
	if err := makeParents(filepath.Dir(path)); err != nil {
		return err
	}
	return MakeDirectory(path, mode)
}

// makeParents makes directories that others pass through, so they are less private than what is in them.
func makeParents(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return MakeDirectories(path, 0o755)
}

// MakeDirectory makes a directory durably with exactly this mode, unless it exists. Its parent must exist.
func MakeDirectory(path string, mode os.FileMode) error {
	switch err := os.Mkdir(path, mode); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return fmt.Errorf("storage: %w", err)
	}
	// The umask does not decide who passes through.
	if err := chmod(path, mode); err != nil {
		return err
	}
	return SyncDirectory(filepath.Dir(filepath.Clean(path)))
}

// take makes a directory and locks it by a file in it.
func take(path string, mode os.FileMode) (*os.File, error) {
	if err := MakeDirectories(path, mode); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// MendRun makes run/ and its lock again if somebody removed them, and reports whether it did. The locks of system/ and data/ keep another core away
// meanwhile. It is an error if somebody else may have made run/.
func (s *Storage) MendRun() (mended bool, err error) {
	s.mending.Lock()
	defer s.mending.Unlock()
	if held, err := s.holdsRun(); held || err != nil {
		return false, err
	}
	if err := s.checkRun(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	fresh, err := take(s.Run, shared())
	if err != nil {
		return false, err
	}
	// Somebody else can have been faster.
	if err := s.checkRun(); err != nil {
		return false, errors.Join(err, fresh.Close())
	}
	former := s.run
	s.run = fresh
	problems := []error{chmod(s.Run, shared()), former.Close()}
	if s.owner != "" {
		if err := os.Symlink(s.owner, filepath.Join(s.Run, ownerName)); err != nil && !errors.Is(err, fs.ErrExist) {
			problems = append(problems, fmt.Errorf("storage: %w", err))
		}
	}
	return true, errors.Join(problems...)
}

// HoldsRun reports whether run/ is the directory in which this core has the lock. Otherwise MendRun is to make it.
func (s *Storage) HoldsRun() (bool, error) {
	s.mending.Lock()
	defer s.mending.Unlock()
	return s.holdsRun()
}

func (s *Storage) holdsRun() (bool, error) {
	held, err := s.run.Stat()
	if err != nil {
		return false, fmt.Errorf("storage: %w", err)
	}
	now, err := os.Lstat(s.run.Name())
	return err == nil && os.SameFile(now, held), nil
}

// checkRun fails unless only the core's user and root decide what is in run/: below /tmp, whoever comes first makes what somebody removed.
func (s *Storage) checkRun() error {
	parent := filepath.Dir(s.Run)
	for _, path := range []string{parent, s.Run} {
		info, err := os.Lstat(path)
		if err == nil && path == parent && info.Mode().Type() == fs.ModeSymlink && trusted(info) {
			info, err = os.Stat(path) // /var/run, say
		}
		if err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		sticky := path == parent && info.Mode()&fs.ModeSticky != 0
		if !info.IsDir() || !trusted(info) || info.Mode().Perm()&0o022 != 0 && !sticky {
			return fmt.Errorf("storage: the node's run directory is not made in a place that others can change: %s (%s) is not a directory that only root or user %d can write: see who made it, and remove it",
				path, info.Mode(), os.Geteuid())
		}
	}
	return nil
}

// trusted reports whether a file is root's or the core's user's.
func trusted(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
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

// HoldData locks the directory that is at Data now. Opening or closing a volume puts another directory there, and the caller calls HoldData again. It
// locks the directory itself: a lock file in it would keep it from being encrypted and closed. *InUseError if another core has it.
func (s *Storage) HoldData() error {
	if err := s.holdData(); err != nil {
		return err
	}
	// Nothing may be changed before the lock is held.
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

// chmod sets a directory's mode. It leaves a correct mode alone, since the file system may be read-only.
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

// WithoutData releases Data, calls do, and locks Data again even if do failed: an open directory cannot be closed by the kernel, not even if the core
// holds it. system/ and run/ stay locked, so no other core can start meanwhile.
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
		return fmt.Errorf("storage: release %s: %w", s.Data, err)
	}
	return nil
}

// UnsearchableError says that roles cannot reach directories of the node.
type UnsearchableError struct {
	// Parents are the directories on the way that are closed to them, those of all the node's directories.
	Parents []string
}

func (e *UnsearchableError) Error() string {
	all := strings.Join(e.Parents, " ")
	return fmt.Sprintf("storage: roles have their own user IDs and cannot pass through %s to the node's directories: run `chmod o+x %s`, or put the directories elsewhere",
		strings.Join(e.Parents, ", "), all)
}

// searchable fails with *UnsearchableError unless every user can pass through all parents of some directories.
func searchable(paths ...string) error {
	closed, err := passage.Closed(paths...)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if len(closed) > 0 {
		return &UnsearchableError{Parents: closed}
	}
	return nil
}

// Close releases the directories.
func (s *Storage) Close() error {
	problems := []error{s.releaseData()}
	for _, lock := range []*os.File{s.system, s.run} {
		if lock != nil {
			problems = append(problems, lock.Close())
		}
	}
	return errors.Join(problems...)
}
