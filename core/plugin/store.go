package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// MaxExecutable is the size of the largest executable that the store takes, in bytes. Kubernetes in one executable has 140 MB.
const MaxExecutable = 1 << 30

const (
	digestPrefix = "sha256:"
	importPrefix = ".import-"
)

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Store keeps the executables of plugins, each under its digest. What it hands out has been verified: a changed file is as good as none.
type Store struct {
	dir string

	mu       sync.Mutex
	verified map[string]fingerprint
}

// fingerprint is what changes when a file is changed. Only the owner of the file, the core, could forge the rest of it, and nobody can
// forge ctime.
type fingerprint struct {
	device, inode uint64
	size          int64
	mtime, ctime  syscall.Timespec
}

// OpenStore opens the store in a directory, which is made if it is absent (its parent must exist). What an interrupted import left is
// removed. One core at a time may use it.
func OpenStore(dir string) (*Store, error) {
	// Roles execute files in it under their own users, but have no business listing it.
	if err := makeDirectory(dir, 0o711); err != nil {
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
	return &Store{dir: dir, verified: make(map[string]fingerprint)}, nil
}

// Import stores what r yields, at most MaxExecutable bytes, and returns its digest, "sha256:" and hex. The bytes are stored as a whole or
// not at all; importing them again changes nothing.
func (s *Store) Import(ctx context.Context, r io.Reader) (digest string, err error) {
	temp, err := os.CreateTemp(s.dir, importPrefix)
	if err != nil {
		return "", fmt.Errorf("plugin: import: %w", err)
	}
	defer func() {
		_ = temp.Close()
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	sum := sha256.New()
	if err := copyBounded(ctx, temp, sum, r); err != nil {
		return "", fmt.Errorf("plugin: import: %w", err)
	}
	digest = digestPrefix + hex.EncodeToString(sum.Sum(nil))
	if _, err := s.Path(digest); err == nil {
		return digest, os.Remove(temp.Name())
	}
	if err := errors.Join(temp.Chmod(0o555), temp.Sync(), temp.Close()); err != nil {
		return "", fmt.Errorf("plugin: import: %w", err)
	}
	if err := os.Rename(temp.Name(), s.file(digest)); err != nil {
		return "", fmt.Errorf("plugin: import: %w", err)
	}
	if err := syncDirectory(s.dir); err != nil {
		return "", fmt.Errorf("plugin: import: %w", err)
	}
	return digest, nil
}

func copyBounded(ctx context.Context, file io.Writer, sum hash.Hash, r io.Reader) error {
	both := io.MultiWriter(file, sum)
	buffer := make([]byte, 256<<10)
	for total := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buffer)
		total += n
		if total > MaxExecutable {
			return fmt.Errorf("the executable is larger than %d MiB", MaxExecutable>>20)
		}
		if _, err := both.Write(buffer[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			if total == 0 {
				return errors.New("the executable is empty")
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Path returns the path of the executable with a digest, after it has made sure that the file is what the digest says. A *MissingError if it is
// not there, or is something else.
func (s *Store) Path(digest string) (string, error) {
	missing := func(reason string) error { return &MissingError{Digest: digest, Reason: reason} }
	if !digestPattern.MatchString(digest) {
		return "", missing("not a digest (sha256: and 64 hex digits)")
	}
	path := s.file(digest)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", missing("is not stored on this node")
	}
	if err != nil {
		return "", missing(err.Error())
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", missing(err.Error())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return "", missing(path + " is not a regular file")
	}
	if int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return "", missing(path + " can be written by others than the core")
	}
	if info.Mode().Perm()&0o111 != 0o111 {
		return "", missing(path + " is not executable")
	}
	print := fingerprint{device: stat.Dev, inode: stat.Ino, size: stat.Size, mtime: stat.Mtim, ctime: stat.Ctim}
	s.mu.Lock()
	known, seen := s.verified[digest]
	s.mu.Unlock()
	if seen && known == print {
		return path, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", missing(err.Error())
	}
	if found := digestPrefix + hex.EncodeToString(sum.Sum(nil)); found != digest {
		return "", missing(fmt.Sprintf("%s was changed: its content is %s", path, short(found)))
	}
	s.mu.Lock()
	s.verified[digest] = print
	s.mu.Unlock()
	return path, nil
}

func (s *Store) file(digest string) string {
	return filepath.Join(s.dir, "sha256-"+strings.TrimPrefix(digest, digestPrefix))
}
