package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/passage"
)

// CreateOnly makes a file with its content in one step and on disk, and reports that it did, or leaves one that is there as it is.
func CreateOnly(path string, content []byte, mode fs.FileMode) (made bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
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
	return RenameOnly(draft.Name(), path)
}

// RenameOnly gives a draft in the same directory its name, and reports that it did, or leaves a file of that name as it is. The draft may stay too.
func RenameOnly(draft, path string) (made bool, err error) {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	defer func() { _ = directory.Close() }()
	err = unix.Renameat2(unix.AT_FDCWD, draft, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// The file system cannot do that. A link does not replace a file either.
		err = os.Link(draft, path)
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
	if err := MakeParents(path); err != nil {
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

// MakeParents makes the directories above a path. Everybody may pass through those that it makes, whatever the umask is.
func MakeParents(path string) error {
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := makeDirectory(parent, 0o755)
	return err
}

// CheckPassable refuses places that the roles of root's node cannot reach, since they have user IDs of their own. It names all that is in their way.
func CheckPassable(state, run string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	closed, err := passage.Closed(filepath.Join(state, "data"), run)
	if err != nil {
		return pathFault(err, "cannot find out whether roles reach the node's directories")
	}
	if len(closed) == 0 {
		return nil
	}
	return fault.New(fault.Refused, "roles have user IDs of their own and cannot pass through "+strings.Join(closed, ", "),
		"Run `chmod o+x "+strings.Join(closed, " ")+"`, or give other places with --state and --run.")
}
