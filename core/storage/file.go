package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile replaces a file atomically and durably: after it has returned, the file has the new content even if the machine loses power,
// and at no time is there a file with half of it.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	// The mode is exact: neither the umask nor what an older file had decides who may read a secret. The new file is made beside the
	// old one, so that a secret never lies in another directory.
	if err := renameio.WriteFile(path, content, mode, renameio.WithStaticPermissions(mode), renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("storage: write %s: %w", path, bare(err))
	}
	return SyncDirectory(filepath.Dir(path))
}

// bare is an error without the name of the draft that it happened to, which says nothing to anybody and is another one at every try.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// WriteJSON is WriteFile with the indented JSON of value.
func WriteJSON(path string, value any, mode os.FileMode) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("storage: write %s: %w", path, err)
	}
	return WriteFile(path, append(content, '\n'), mode)
}

// SyncDirectory makes the names in a directory durable.
func SyncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("storage: sync %s: %w", path, err)
	}
	if err := errors.Join(directory.Sync(), directory.Close()); err != nil {
		return fmt.Errorf("storage: sync %s: %w", path, err)
	}
	return nil
}
