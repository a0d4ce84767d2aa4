package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Erase overwrites a file and removes it durably. It does nothing if the file does not exist, and leaves the content if the file has another name.
// Flash memory and copying file systems may keep the old bytes all the same.
func Erase(path string) error {
	content, err := replaced(path)
	if err == nil {
		err = errors.Join(os.Remove(path), content.erase())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("storage: erase %s: %w", path, stripPath(err))
	}
	return SyncDirectory(filepath.Dir(path))
}

// old is a file that is about to lose its name.
type old struct{ file *os.File }

// replaced opens a file before it is removed or replaced. The error is fs.ErrNotExist if there is none.
func replaced(path string) (old, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	return old{file}, err
}

// erase overwrites a file that has no name left. Another hard link is a copy that somebody made on purpose, so its content stays.
func (o old) erase() (err error) {
	defer func() { err = errors.Join(err, o.file.Close()) }()
	info, err := o.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if links, ok := info.Sys().(*syscall.Stat_t); ok && links.Nlink > 0 {
		return nil
	}
	// Only root can write to a read-only file; an owner can change its mode first.
	if err := o.file.Chmod(0o600); err != nil {
		return err
	}
	file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", o.file.Fd()), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, info.Size()))
	return errors.Join(err, file.Sync(), file.Close())
}
