package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/limits"
)

// MaxExecutable is the size of the largest executable that the store takes, in bytes. Kubernetes in one executable has 140 MB.
const MaxExecutable = 1 << 30

const (
	digestPrefix = "sha256:"
	importPrefix = ".import-"
	filePrefix   = "sha256-"
	// collectAge is how long an executable has to be of no use to anybody before it is removed: far longer than what was imported takes to become
	// part of the catalog.
	collectAge = time.Hour
)

// Store keeps the executables of plugins, each under its digest. What it hands out is not a path but the verified bytes: a changed file is as good
// as none. It keeps a descriptor of each executable that was asked for, and as an ordinary user a copy in memory, until Collect or Close.
type Store struct {
	dir string
	// root says that the files belong to root, so that no role can change them, or even read them.
	root bool

	mu      sync.Mutex
	entries map[string]*entry
}

// Open opens the store in a directory, which is made if it is absent (its parent must exist). What an interrupted import left is
// removed. One core at a time may use it.
func Open(dir string) (*Store, error) {
	// Roles are executed by descriptors: the directory is the core's alone.
	if err := errors.Join(storage.MakeDirectory(dir, 0o700), os.Chmod(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("plugin: store: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("plugin: store: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), importPrefix) {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return nil, fmt.Errorf("plugin: store: remove an interrupted import: %w", err)
			}
		}
	}
	return &Store{dir: dir, root: os.Geteuid() == 0, entries: make(map[string]*entry)}, nil
}

// Close closes what the store keeps open. What was handed out stays valid until it is closed itself.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var problems []error
	for digest, e := range s.entries {
		problems = append(problems, e.close())
		delete(s.entries, digest)
	}
	return errors.Join(problems...)
}

// Open returns the executable with a digest, after it has made sure that it is what the digest says; a *MissingError if it is not there, or is
// something else. Its bytes are read when it is opened for the first time, and again when the file was touched. The caller closes it: until then Collect
// leaves it alone.
func (s *Store) Open(digest string) (*Executable, error) {
	if !limits.DigestOK(digest) {
		return nil, &MissingError{Digest: digest, Reason: "not a digest (sha256: and 64 hex digits)"}
	}
	e := s.take(digest)
	opened, err := e.open(s.file(digest), digest, s.root)
	if err != nil {
		s.leave(e)
		return nil, err
	}
	opened.release = func() { s.leave(e) }
	return opened, nil
}

// Ahead verifies an executable that is going to be opened, so that Open has nothing to read then. What is wrong with it is said by Open. As an ordinary user it
// does nothing: the copy in memory is made when it is of use.
func (s *Store) Ahead(digest string) {
	if !s.root {
		return
	}
	if opened, err := s.Open(digest); err == nil {
		_ = opened.Close()
	}
}

// Has reports whether the executable with a digest is there. Whether its bytes are what the digest says is found out when it is opened.
func (s *Store) Has(digest string) bool {
	if !limits.DigestOK(digest) {
		return false
	}
	info, err := os.Lstat(s.file(digest))
	return err == nil && info.Mode().IsRegular()
}

// take returns the entry of a digest, which is then in use.
func (s *Store) take(digest string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[digest]
	if e == nil {
		e = &entry{}
		s.entries[digest] = e
	}
	e.users++
	e.unused = time.Time{}
	return e
}

func (s *Store) leave(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.users--
}

// Collect removes the executables that nobody has a use for, and returns their digests: those that keep does not name and that are not handed out.
// Nobody may have had a use for them for an hour in which this store was open, so that it is to be called now and then: what was just imported, or given
// up and taken again, is never removed, whatever the clock of the machine says. What it keeps open or in memory of an executable that is not kept is
// given back at once.
func (s *Store) Collect(keep func(digest string) bool) (removed []string, err error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("plugin: store: %w", err)
	}
	var problems []error
	for _, file := range files {
		digest := digestPrefix + strings.TrimPrefix(file.Name(), filePrefix)
		if !strings.HasPrefix(file.Name(), filePrefix) || !limits.DigestOK(digest) {
			continue
		}
		gone, err := s.collect(digest, keep(digest))
		if err != nil {
			problems = append(problems, err)
		}
		if gone {
			removed = append(removed, digest)
		}
	}
	if len(removed) > 0 {
		problems = append(problems, storage.SyncDirectory(s.dir))
	}
	if err := errors.Join(problems...); err != nil {
		return removed, fmt.Errorf("plugin: collect executables that nobody uses: %w", err)
	}
	return removed, nil
}

// collect decides on one executable. Whoever imports or opens it does so before, and it is in use, or afterwards, and finds it gone.
func (s *Store) collect(digest string, keep bool) (removed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[digest]
	if e == nil {
		e = &entry{}
		s.entries[digest] = e
	}
	switch {
	case keep || e.users > 0:
		e.unused = time.Time{}
		return false, nil
	case e.unused.IsZero():
		e.unused = time.Now()
		return false, e.close()
	case time.Since(e.unused) < collectAge:
		return false, nil
	}
	if err := os.Remove(s.file(digest)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	delete(s.entries, digest)
	return true, nil
}

func (s *Store) file(digest string) string {
	return filepath.Join(s.dir, filePrefix+strings.TrimPrefix(digest, digestPrefix))
}
