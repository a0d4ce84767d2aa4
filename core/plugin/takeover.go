package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/reeveproject/reeve/core/storage"
)

// TakeOver moves the executables of a store that an earlier core kept in another directory into this one, one after the other, and removes the directory with
// whatever else is in it. It can be stopped anywhere and called again: nothing is removed before it is here.
func (s *Store) TakeOver(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("plugin: take over %s: %w", dir, err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if entry.Type().IsRegular() && strings.HasPrefix(entry.Name(), filePrefix) {
			err = s.importFile(ctx, path)
		}
		if err == nil {
			err = os.RemoveAll(path)
		}
		if err != nil {
			return fmt.Errorf("plugin: take over %s: %w", path, err)
		}
	}
	if err := os.Remove(dir); err != nil {
		return fmt.Errorf("plugin: take over %s: %w", dir, err)
	}
	return storage.SyncDirectory(filepath.Dir(dir))
}

func (s *Store) importFile(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = s.Import(ctx, file)
	return err
}
