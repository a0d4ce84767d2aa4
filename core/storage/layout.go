package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// lockName is the file in each of the directories that the running core holds locked.
const lockName = "lock"

// Layout names the files and directories of a node.
type Layout struct {
	// System is small and unencrypted, Data is the volume, Run is a tmpfs.
	System, Data, Run string
}

// NewLayout returns the layout that the parameters ask for.
func NewLayout(directories *nodev1.Directories) Layout {
	return Layout{
		System: filepath.Clean(directories.GetSystem()),
		Data:   filepath.Clean(directories.GetData()),
		Run:    filepath.Clean(directories.GetRun()),
	}
}

// Configuration is the file of the sealed configuration.
func (l Layout) Configuration() string { return filepath.Join(l.System, "configuration.json") }

// Volume is the file that says what volume Data is.
func (l Layout) Volume() string { return filepath.Join(l.Data, "volume.json") }

// Plugins is the directory of executables by digest.
func (l Layout) Plugins() string { return filepath.Join(l.Data, "plugins") }

// Identity is the directory of the cluster's and the node's certificates.
func (l Layout) Identity() string { return filepath.Join(l.Data, "identity") }

// Assignment is the file of the roles that the cluster last assigned to the node.
func (l Layout) Assignment() string { return filepath.Join(l.Data, "cache", "assignment.json") }

// Roles is the directory in which every role has a directory of its own.
func (l Layout) Roles() string { return filepath.Join(l.Data, "roles") }

// Reserve is the file that takes room on the volume for when it is full.
func (l Layout) Reserve() string { return filepath.Join(l.Data, "reserve") }

// Full is the file that says which roles must not run since they filled the volume.
func (l Layout) Full() string { return filepath.Join(l.Data, "cache", "full.json") }

// Executables is the file that says when the executables of plugins were last of use.
func (l Layout) Executables() string { return filepath.Join(l.Data, "cache", "executables.json") }

// Log is the file to which the instances of a role write their standard error.
func (l Layout) Log(role string) string { return filepath.Join(l.Data, "logs", role+".log") }

// Events is the file of what happened on the node.
func (l Layout) Events() string { return filepath.Join(l.Data, "events.jsonl") }

// Failures is the directory of how roles last failed.
func (l Layout) Failures() string { return filepath.Join(l.Data, "failures") }

// Start is the file with the order of the core's starts.
func (l Layout) Start() string { return filepath.Join(l.Data, "start.json") }

// Users is the file that says which user ID belongs to which role.
func (l Layout) Users() string { return filepath.Join(l.Data, "uids.json") }

// NodeSocket is the socket of the node's own API.
func (l Layout) NodeSocket() string { return filepath.Join(l.Run, "node.sock") }

// InUseError says that another core runs on the same directories.
type InUseError struct {
	// Lock is the file that the other core holds locked.
	Lock string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("storage: another reeved runs on this directory (it holds %s): use that one, stop it first, or give this node other directories", e.Lock)
}

// Storage is the directories of a node, held by this core.
type Storage struct {
	Layout
	locks []*os.File
}

// Open makes the node's directories and takes them for this core. *InUseError if another core has one of them; nothing is changed then.
// Directories that exist keep their content. As root, where every role has a user ID of its own, the roles must be able to pass through data/ and run/:
// *UnsearchableError if they cannot.
func Open(layout Layout) (*Storage, error) {
	// Where every role has the core's own user ID, nobody else has any business in there.
	shared := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		shared = 0o711
	}
	directories := []struct {
		path string
		mode os.FileMode
	}{
		{layout.System, 0o700},
		{layout.Data, shared},
		{layout.Run, shared},
	}
	s := &Storage{Layout: layout}
	// Each directory is locked by itself: whichever of them another node's parameters name by mistake, the second core is refused.
	for _, directory := range directories {
		if err := s.take(directory.path, directory.mode); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	for _, directory := range directories {
		if err := os.Chmod(directory.path, directory.mode); err != nil {
			return nil, errors.Join(fmt.Errorf("storage: %w", err), s.Close())
		}
	}
	if os.Geteuid() == 0 {
		for _, path := range []string{layout.Data, layout.Run} {
			if err := searchable(path); err != nil {
				return nil, errors.Join(err, s.Close())
			}
		}
	}
	return s, nil
}

// take makes a directory, unless it is there, and locks it.
func (s *Storage) take(path string, mode os.FileMode) error {
	// Parents are everybody's way to the directory, so they are not as private as it is.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	switch err := os.Mkdir(path, mode); {
	case err == nil:
		if err := SyncDirectory(filepath.Dir(path)); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("storage: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	s.locks = append(s.locks, lock)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &InUseError{Lock: lock.Name()}
		}
		return fmt.Errorf("storage: lock %s: %w", lock.Name(), err)
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
	var problems []error
	for _, lock := range s.locks {
		problems = append(problems, lock.Close())
	}
	return errors.Join(problems...)
}
