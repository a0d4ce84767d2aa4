package contexts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/plainfile"
)

// Store is a configuration directory. It may be used by several goroutines.
type Store struct {
	dir string
}

// maxFile bounds a file that is read: a thousand contexts are a few hundred KiB.
const maxFile = 4 << 20

// HostDirectory returns the configuration directory of the user: $XDG_CONFIG_HOME/reeve, or ~/.config/reeve. Empty: the user has no home.
func HostDirectory() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "reeve")
}

// New returns the Store in a directory, which is made when something is put there. Without a directory there are no contexts, and none can be kept.
func New(dir string) *Store { return &Store{dir: dir} }

// ConfigFile is the path of config.json.
func (s *Store) ConfigFile() string { return filepath.Join(s.dir, "config.json") }

func (s *Store) sessionFile(name string) string {
	return filepath.Join(s.dir, "sessions", name+".json")
}

// Load returns the contexts; none, if there is no file.
func (s *Store) Load() (*Config, error) {
	if s.dir == "" {
		return &Config{Version: Version}, nil
	}
	text, err := readFile(s.ConfigFile(), false)
	if errors.Is(err, fs.ErrNotExist) {
		return &Config{Version: Version}, nil
	}
	if err != nil {
		return nil, fileFault(err, "cannot read the contexts in "+s.ConfigFile())
	}
	config, err := Parse(text)
	if err != nil {
		return nil, formatFault(err, s.ConfigFile(), "Correct the file, or move it away and log in again; nothing in it was changed.")
	}
	return config, nil
}

// Update changes the contexts: change gets them as they are now. If it returns an error, or changes nothing, nothing is written.
func (s *Store) Update(ctx context.Context, change func(*Config) error) error {
	if err := s.makeDirectories(); err != nil {
		return err
	}
	lock, err := acquire(ctx, filepath.Join(s.dir, "lock"), true)
	if err != nil {
		return fileFault(err, "cannot lock the contexts in "+s.dir)
	}
	defer lock.release()
	config, err := s.Load()
	if err != nil {
		return err
	}
	before, err := config.Encode()
	if err != nil {
		return err
	}
	if err := change(config); err != nil {
		return err
	}
	after, err := config.Encode()
	if err != nil {
		return fault.Wrap(fault.Failed, err, "the contexts would not be readable", "")
	}
	if string(before) == string(after) {
		return nil
	}
	return fileFault(writeFile(s.ConfigFile(), after), "cannot write "+s.ConfigFile())
}

// ErrNoSession says that a context has no session.
var ErrNoSession = errors.New("there is no session")

// Session returns the session of a context: ErrNoSession if it has none.
func (s *Store) Session(name string) (*Session, error) {
	if s.dir == "" {
		return nil, ErrNoSession
	}
	file := s.sessionFile(name)
	text, err := readFile(file, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoSession
	}
	var open *OpenError
	if errors.As(err, &open) {
		return nil, fault.Wrap(fault.Refused, err, "the session of context "+name+" is not used",
			"If the key in "+file+" is still yours alone, run `chmod 600 "+file+"`; else `reeve login --name "+name+"`.")
	}
	if err != nil {
		return nil, fileFault(err, "cannot read the session of context "+name)
	}
	session, err := ParseSession(text)
	if err != nil {
		return nil, formatFault(err, file, "Run `reeve login --name "+name+"` for another session.")
	}
	return session, nil
}

// LockSession waits until nobody else changes the session of a context, and keeps everybody else from it until Release.
func (s *Store) LockSession(ctx context.Context, name string) (*SessionLock, error) {
	return s.lockSession(ctx, name, true)
}

// ErrLocked says that somebody else changes a session.
var ErrLocked = errors.New("somebody else changes the session")

// TryLockSession is LockSession without waiting: ErrLocked if somebody else changes the session.
func (s *Store) TryLockSession(ctx context.Context, name string) (*SessionLock, error) {
	return s.lockSession(ctx, name, false)
}

func (s *Store) lockSession(ctx context.Context, name string, wait bool) (*SessionLock, error) {
	if err := s.makeDirectories(); err != nil {
		return nil, err
	}
	lock, err := acquire(ctx, filepath.Join(s.dir, "sessions", name+".lock"), wait)
	if errors.Is(err, ErrLocked) {
		return nil, err
	}
	if err != nil {
		return nil, fileFault(err, "cannot lock the session of context "+name)
	}
	return &SessionLock{store: s, name: name, lock: lock}, nil
}

// SessionLock is the right to change the session of a context.
type SessionLock struct {
	store *Store
	name  string
	lock  *lock
}

// Write puts a session in the place of the present one, unless that is of another version of reeve.
func (l *SessionLock) Write(session *Session) error {
	file := l.store.sessionFile(l.name)
	if present, err := readFile(file, false); err == nil {
		var version *VersionError
		if _, err := ParseSession(present); errors.As(err, &version) && version.Version != "" {
			return formatFault(err, file, "")
		}
	}
	text, err := session.encode()
	if err != nil {
		return err
	}
	return fileFault(writeFile(file, text), "cannot keep the session of context "+l.name)
}

// Forget removes the session, and reports whether there was one.
func (l *SessionLock) Forget() (bool, error) {
	file := l.store.sessionFile(l.name)
	err := os.Remove(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(file))
	}
	return err == nil, fileFault(err, "cannot remove the session of context "+l.name)
}

// Release lets others change the session.
func (l *SessionLock) Release() { l.lock.release() }

// makeDirectories makes the directories, for nobody but their owner.
func (s *Store) makeDirectories() error {
	if s.dir == "" {
		return fault.New(fault.Refused, "there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set", "Set one of them.")
	}
	for _, dir := range []string{s.dir, filepath.Join(s.dir, "sessions")} {
		if err := makePrivate(dir); err != nil {
			return fileFault(err, "cannot make the directory "+dir)
		}
	}
	return nil
}

func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	// Only its owner can: another one's directory is not one for keys.
	return os.Chmod(dir, 0o700)
}

// OpenError says that others than its owner may read a file with a key.
type OpenError struct {
	Path string
	Mode fs.FileMode
}

// Error implements error.
func (e *OpenError) Error() string {
	return fmt.Sprintf("others may read %s, which holds a key (mode %04o)", e.Path, e.Mode)
}

// readFile reads a whole file; one with a key must be its owner's alone.
func readFile(path string, private bool) ([]byte, error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); private && mode&0o077 != 0 {
		return nil, &OpenError{Path: path, Mode: mode}
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return text, err
}

// writeFile replaces a file in one step. When it returns the file is on the disk.
func writeFile(path string, content []byte) error {
	// The draft lies beside the file: in a directory that nobody else may enter.
	if err := renameio.WriteFile(path, content, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600)); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func formatFault(err error, file, next string) error {
	var version *VersionError
	if errors.As(err, &version) && version.Version != "" {
		return fault.Wrap(fault.Refused, err, file+" was written by another version of reeve", "Use that one, or a newer one; nothing in it was changed.")
	}
	return fault.Wrap(fault.Failed, err, file+" is damaged", next)
}

func fileFault(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.Wrap(fault.Refused, err, what, "Run reeve as the user whose configuration it is, or set XDG_CONFIG_HOME to another directory.")
	default:
		return fault.Wrap(fault.Failed, err, what, "")
	}
}
