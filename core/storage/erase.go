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

// Erase overwrites a file and removes it, durably; it does nothing if there is none. A file that has another name keeps its content there. Where a disk writes
// elsewhere than it was told to, as flash memory does, or keeps copies, what was in the file may still be found there.
func Erase(path string) error {
	content, err := replaced(path)
	if err == nil {
		err = errors.Join(os.Remove(path), content.erase())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("storage: erase %s: %w", path, bare(err))
	}
	return SyncDirectory(filepath.Dir(path))
}

// old is a file whose name is about to be another one's.
type old struct{ file *os.File }

// replaced takes hold of a file before it is removed or replaced. The error is fs.ErrNotExist if there is none.
func replaced(path string) (old, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	return old{file}, err
}

// erase overwrites what has no name any more. What still has another one, as a copy by a link has, is somebody's on purpose.
func (o old) erase() (err error) {
	defer func() { err = errors.Join(err, o.file.Close()) }()
	info, err := o.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if links, ok := info.Sys().(*syscall.Stat_t); ok && links.Nlink > 0 {
		return nil
	}
	// Only root may write to what it may only read; everybody may change the mode of what is theirs.
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
