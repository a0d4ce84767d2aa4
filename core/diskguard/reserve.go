package diskguard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// reserve takes room on the volume, to be given free when that runs out.
type reserve interface {
	// make takes what is missing of so much, or a part of it, and reports whether all of it is there since now.
	make(all int64) (complete bool, err error)
	// free gives all back but so much, and returns how much it gave now.
	free(but int64) (freed int64, err error)
}

// block is a file that does nothing but take room.
type block struct {
	path string
	// made says that the file is there, as far as is known.
	made bool
}

// make allots the room and does not write it, which takes no time.
func (b *block) make(bytes int64) (complete bool, err error) {
	if b.made || bytes <= 0 {
		return false, nil
	}
	if err := allot(b.path, bytes); err != nil {
		_ = os.Remove(b.path)
		return false, fmt.Errorf("diskguard: %w", err)
	}
	b.made = true
	return true, nil
}

func allot(path string, bytes int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Fallocate(int(file.Fd()), 0, 0, bytes); err != nil {
		return errors.Join(&os.PathError{Op: "allocate", Path: path, Err: err}, file.Close())
	}
	return file.Close()
}

func (b *block) free(but int64) (freed int64, err error) {
	b.made = false
	file, err := os.OpenFile(b.path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil && but == 0 {
		return 0, os.Remove(b.path) // it may be no file
	}
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() > but {
		freed = info.Size() - but
		err = file.Truncate(but)
	}
	if but == 0 {
		err = errors.Join(err, os.Remove(b.path))
	}
	return freed, errors.Join(err, file.Close())
}

// atOnce is how many files of the reserve are made at a time, so that nothing has to wait for all of them.
const atOnce = 256

// files are empty ones that do nothing but take inodes: where those are counted, a volume with room can be full all the same. They are named by number.
type files struct {
	// path is their directory, which stays when they go: to make it takes an inode.
	path string
	// made are those that are there, as far as is known.
	made int64
}

func (f *files) make(number int64) (complete bool, err error) {
	if f.made >= number {
		return false, nil
	}
	for upTo := min(number, f.made+atOnce); f.made < upTo; f.made++ {
		if err := f.one(f.made); err != nil {
			return false, fmt.Errorf("diskguard: %w", err)
		}
	}
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

func (f *files) free(but int64) (freed int64, err error) {
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
