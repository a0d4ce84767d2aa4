package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CreateOnly makes a file with its content in one step and on disk, and reports that it did, or leaves one that is there as it is.
func CreateOnly(path string, content []byte, mode fs.FileMode) (made bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	defer func() { _ = directory.Close() }()
	// A draft beside it that gets the name once it is complete: whoever comes second finds the first one.
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(draft.Name()) }()
	_, err = draft.Write(content)
	if err = errors.Join(err, draft.Chmod(mode), draft.Sync(), draft.Close()); err != nil {
		return false, err
	}
	err = unix.Renameat2(unix.AT_FDCWD, draft.Name(), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// The file system cannot do that. A link does not replace a file either.
		err = os.Link(draft.Name(), path)
	}
	switch {
	case err == nil:
		return true, directory.Sync()
	case errors.Is(err, fs.ErrExist):
		return false, nil
	default:
		return false, err
	}
}

// makeDirectory makes a directory, and those above it, and reports whether it did. One that is there keeps its mode.
func makeDirectory(path string, mode fs.FileMode) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	switch err := os.Mkdir(path, mode); {
	case err == nil:
		// The mode of Mkdir is subject to the umask.
		return true, os.Chmod(path, mode)
	case !errors.Is(err, fs.ErrExist):
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, &fs.PathError{Op: "mkdir", Path: path, Err: errors.New("is not a directory")}
	}
	return false, nil
}
