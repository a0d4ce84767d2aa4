package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

type plain struct{ data string }

// NewPlain returns the volume that is a directory without encryption.
func NewPlain(data string) Kind { return plain{data} }

func (p plain) Describe() Description { return Description{Kind: storage.Plain, Location: p.data} }

// State is never Closed: what is there can be read by whoever has the disk.
func (p plain) State(context.Context) (State, error) {
	found, err := Content(p.data)
	if err != nil {
		return Absent, err
	}
	if found == "" {
		return Absent, nil
	}
	return Open, nil
}

func (p plain) Format(context.Context, *keys.Secret) error {
	found, err := Content(p.data)
	if err != nil {
		return err
	}
	if found != "" {
		return &NotEmptyError{Location: p.data, Found: found}
	}
	return MakeDirectory(p.data, 0o700)
}

func (p plain) Open(context.Context, *keys.Secret) error {
	if _, err := os.Stat(p.data); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	return nil
}

func (p plain) Close(context.Context) error { return nil }

func (p plain) Rotate(context.Context, *keys.Secret, *keys.Secret) error { return ErrFixedKey }

// Content names something that is in a directory; "" if it is empty or missing. What a new file system has does not count, nor what the interrupted writing of
// the volume file may have left.
func Content(path string) (string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("volume: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != "lost+found" && !strings.HasPrefix(name, storage.VolumeDraft) {
			return name, nil
		}
	}
	return "", nil
}

// MakeDirectory makes a directory durably, unless it is there.
func MakeDirectory(path string, mode os.FileMode) error {
	switch err := os.Mkdir(path, mode); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return fmt.Errorf("volume: %w", err)
	}
	return storage.SyncDirectory(parent(path))
}
