package passage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Closed returns the directories above some paths through which not every user can pass, sorted. What does not exist yet is no barrier: who makes it makes it passable.
func Closed(paths ...string) (closed []string, err error) {
	for _, path := range paths {
		// Whoever follows a link passes through its parents and through those of its target.
		real, err := resolve(path)
		if err != nil {
			return nil, err
		}
		for _, way := range []string{path, real} {
			for parent := filepath.Dir(way); ; parent = filepath.Dir(parent) {
				// Everybody may follow a link itself.
				switch info, err := os.Lstat(parent); {
				case errors.Is(err, fs.ErrNotExist):
				case err != nil:
					return nil, err
				case info.Mode().Perm()&0o001 == 0 && !slices.Contains(closed, parent):
					closed = append(closed, parent)
				}
				if parent == filepath.Dir(parent) {
					break
				}
			}
		}
	}
	slices.Sort(closed)
	return closed, nil
}

// resolve is a path without links, as far as there are directories on it.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
		real, err = resolve(parent)
		real = filepath.Join(real, filepath.Base(path))
	}
	return real, err
}
