package diskguard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// atOnce is how many files of the reserve are made at a time, so that nothing has to wait for all of them.
const atOnce = 256

// files are empty ones that do nothing but take inodes: where those are counted, a volume with room can be full all the same. They are named by number.
type files struct {
	// path is their directory, which stays when they go: to make it takes an inode.
	path string
	// made are those that are there, as far as is known; refused is why the next could not be made, which is reported once.
	made    int64
	refused string
}

// make makes some of so many files, and reports whether all are there since now.
func (f *files) make(number int64) (complete bool, err error) {
	if f.made >= number {
		return false, nil
	}
	for upTo := min(number, f.made+atOnce); f.made < upTo; f.made++ {
		if err := f.one(f.made); err != nil {
			if err.Error() == f.refused {
				return false, nil
			}
			f.refused = err.Error()
			return false, fmt.Errorf("diskguard: %w", err)
		}
	}
	f.refused = ""
	return f.made >= number, nil
}

// one makes one of the files. It may be there, of an earlier core.
func (f *files) one(number int64) error {
	if number == 0 {
		if err := os.Mkdir(f.path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	file, err := os.OpenFile(filepath.Join(f.path, strconv.FormatInt(number, 10)), os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// free removes all of the files but so many, and returns how many it has removed now.
func (f *files) free(but int64) (freed int, err error) {
	found, err := os.ReadDir(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	f.made = 0
	for _, file := range found[min(int(but), len(found)):] {
		if removeErr := os.Remove(filepath.Join(f.path, file.Name())); removeErr != nil {
			err = removeErr
			continue
		}
		freed++
	}
	return freed, err
}
