package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeDirectory makes a directory of the core with the given mode, or gives it that mode.
func makeDirectory(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	if info.Mode().Perm() != mode.Perm() {
		return os.Chmod(path, mode) // the umask does not decide
	}
	return nil
}

// ownDirectory makes a directory that belongs to a role. If it is there and belongs to another user (the volume was moved to another
// host, or the core has become root), it is given to the role with everything in it.
func ownDirectory(path string, uid, gid uint32) error {
	if err := makeDirectory(path, 0o700); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == uid && stat.Gid == gid {
		return nil
	}
	return giveTree(path, uid, gid)
}

// giveTree changes the owner of a directory and of what is below it. It is confined to the directory and follows no symbolic link,
// because what is below was written by a role. The directory itself comes last: done halfway, it is done again.
func giveTree(path string, uid, gid uint32) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return root.Lchown(name, int(uid), int(gid))
	})
	if err != nil {
		return fmt.Errorf("give %s to user %d: %w", path, uid, err)
	}
	return unix.Lchown(path, int(uid), int(gid))
}
