package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

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

// Lock is the file that the running core holds locked.
func (l Layout) Lock() string { return filepath.Join(l.System, "lock") }

// Volume is the file that says what volume Data is.
func (l Layout) Volume() string { return filepath.Join(l.Data, "volume.json") }

// Plugins is the directory of executables by digest.
func (l Layout) Plugins() string { return filepath.Join(l.Data, "plugins") }

// Identity is the directory of the cluster's and the node's certificates.
func (l Layout) Identity() string { return filepath.Join(l.Data, "identity") }

// Assignment is the file of the roles that the cluster last assigned to the node.
func (l Layout) Assignment() string { return filepath.Join(l.Data, "cache", "assignment.json") }

// Log is the file to which the instances of a role write their standard error.
func (l Layout) Log(role string) string { return filepath.Join(l.Data, "logs", role+".log") }

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
	return fmt.Sprintf("storage: another reeved runs on this directory (it holds %s): use that one, or stop it first", e.Lock)
}

// Storage is the directories of a node, held by this core.
type Storage struct {
	Layout
	lock *os.File
}

// Open makes the node's directories and takes them for this core. *InUseError if another core has them. Directories that exist keep their
// content; the roles' user IDs must be able to pass through data/ and run/, so those are searchable.
func Open(layout Layout) (*Storage, error) {
	for _, directory := range []struct {
		path string
		mode os.FileMode
	}{
		{layout.System, 0o700},
		{layout.Data, 0o711},
		{layout.Run, 0o711},
	} {
		if err := os.MkdirAll(directory.path, directory.mode); err != nil {
			return nil, fmt.Errorf("storage: %w", err)
		}
		if err := os.Chmod(directory.path, directory.mode); err != nil {
			return nil, fmt.Errorf("storage: %w", err)
		}
	}
	lock, err := os.OpenFile(layout.Lock(), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &InUseError{Lock: layout.Lock()}
		}
		return nil, fmt.Errorf("storage: lock %s: %w", layout.Lock(), err)
	}
	return &Storage{Layout: layout, lock: lock}, nil
}

// Close gives the directories back.
func (s *Storage) Close() error {
	return s.lock.Close()
}
