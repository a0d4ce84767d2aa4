package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/checkpoint"
)

// WriteFile replaces a file atomically and durably. Once it returns, the new content survives a power failure. There is never a half-written file.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	if err := write(path, content, mode); err != nil {
		return fmt.Errorf("storage: write %s: %w", path, stripPath(err))
	}
	if err := SyncDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	checkpoint.At(checkpoint.Written(path))
	return nil
}

func write(path string, content []byte, mode os.FileMode) error {
	// The mode is exact: neither the umask nor the old file decides who may read a secret. The draft is in the same directory, so a secret never lies
	// elsewhere.
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

// stripPath strips the path from an error: it names a draft that has another random name at every try.
func stripPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// WriteJSON writes the indented JSON of value by WriteFile.
func WriteJSON(path string, value any, mode os.FileMode) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("storage: write %s: %w", path, err)
	}
	return WriteFile(path, append(content, '\n'), mode)
}

// ReadJSON decodes a document of WriteJSON, as ParseJSON does. It leaves value unchanged if there is no file.
func ReadJSON(path string, version int, value any) error {
	content, err := ReadSmall(path, maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = ParseJSON(content, version, value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ParseJSON decodes a document of WriteJSON. *VersionError if its field "version" is not the given one.
func ParseJSON(content []byte, version int, value any) error {
	if err := checkVersion(content, version); err != nil {
		return err
	}
	return json.Unmarshal(content, value)
}

// ParseStrictJSON is ParseJSON for documents that have no fields but those of value.
func ParseStrictJSON(content []byte, version int, value any) error {
	if err := checkVersion(content, version); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	return decoder.Decode(value)
}

func checkVersion(content []byte, version int) error {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return err
	}
	if head.Version != version {
		return &VersionError{Found: head.Version, Known: version}
	}
	return nil
}

// OpenRegular opens a regular file, or makes one if the flags say so. It does not follow a link, and does not block on a pipe.
func OpenRegular(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s): move it away", path, info.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// SyncDirectory makes the entries of a directory durable.
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

// RemoveDrafts removes the drafts that an interrupted WriteFile left beside the files. Nobody may write the files meanwhile.
func RemoveDrafts(paths ...string) error {
	for _, path := range paths {
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		for _, entry := range entries {
			// A draft's name is a dot, the file's name, and a number.
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
