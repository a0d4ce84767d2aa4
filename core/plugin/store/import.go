package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/reeveproject/reeve/core/storage"
)

// The modes of a stored executable. As root it belongs to root and roles can execute but not read it: the kernel takes a process that cannot read its own
// executable for one that nobody may look into.
const (
	modeAsRoot = 0o511
	modeAsUser = 0o555
)

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
	// In use, it is not collected meanwhile.
	defer s.leave(s.take(digest))
	if stored, err := s.Open(digest); err == nil {
		return digest, errors.Join(stored.Close(), os.Remove(temp.Name()))
	}
	mode := os.FileMode(modeAsUser)
	if s.root {
		mode = modeAsRoot
	}
	if err := errors.Join(temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return "", fmt.Errorf("plugin: import: %w", err)
	}
	if err := os.Rename(temp.Name(), s.file(digest)); err != nil {
		return "", fmt.Errorf("plugin: import: %w", err)
	}
	if err := storage.SyncDirectory(s.dir); err != nil {
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
