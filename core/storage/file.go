package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/reeveproject/reeve/core/checkpoint"
)

// WriteFile replaces a file atomically and durably: after it has returned, the file has the new content even if the machine loses power,
// and at no time is there a file with half of it.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	if err := write(path, content, mode); err != nil {
		return fmt.Errorf("storage: write %s: %w", path, bare(err))
	}
	if err := SyncDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	checkpoint.At(checkpoint.Written(path))
	return nil
}

func write(path string, content []byte, mode os.FileMode) error {
	// The mode is exact: neither the umask nor what an older file had decides who may read a secret. The new file is made beside the
	// old one, so that a secret never lies in another directory.
	draft, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(mode), renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return err
	}
	if _, err := draft.Write(content); err != nil {
		return errors.Join(err, draft.Cleanup())
	}
	checkpoint.At(checkpoint.Write(path))
	if err := draft.CloseAtomicallyReplace(); err != nil {
		return errors.Join(err, draft.Cleanup())
	}
	return nil
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

// RemoveDrafts removes what a WriteFile that was stopped half-way has left beside the files. Nothing may write them meanwhile.
func RemoveDrafts(paths ...string) error {
	for _, path := range paths {
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		for _, entry := range entries {
			// A draft has a number after the name of its file, and a dot before it.
			number, ok := strings.CutPrefix(entry.Name(), "."+filepath.Base(path))
			if !ok || number == "" || strings.Trim(number, "0123456789") != "" || !entry.Type().IsRegular() {
				continue
			}
			if err := Erase(filepath.Join(filepath.Dir(path), entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
