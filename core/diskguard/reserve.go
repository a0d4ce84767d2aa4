package diskguard

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// reserve is a file that does nothing but take room.
type reserve struct {
	path string
	// made says that the file is there, as far as is known; refused why it could not be made, which is reported once.
	made    bool
	refused string
}

// make takes so many bytes, and reports whether it has done so now. Its room is allotted and not written, which takes no time.
func (r *reserve) make(bytes int64) (made bool, err error) {
	if r.made || bytes <= 0 {
		return false, nil
	}
	err = r.allot(bytes)
	if err == nil {
		r.made, r.refused = true, ""
		return true, nil
	}
	_ = os.Remove(r.path)
	if err.Error() == r.refused {
		return false, nil
	}
	r.refused = err.Error()
	return false, fmt.Errorf("diskguard: %w", err)
}

func (r *reserve) allot(bytes int64) error {
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Fallocate(int(file.Fd()), 0, 0, bytes); err != nil {
		return errors.Join(&os.PathError{Op: "allocate", Path: r.path, Err: err}, file.Close())
	}
	return file.Close()
}

// free gives the room back but so many bytes, and reports whether it did so now.
func (r *reserve) free(but int64) (freed bool, err error) {
	r.made = false
	info, err := os.Lstat(r.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && but > 0 && info.Size() <= but {
		return false, nil
	}
	if err == nil && but > 0 {
		err = r.shorten(but)
	} else {
		err = os.Remove(r.path)
	}
	return err == nil, err
}

func (r *reserve) shorten(to int64) error {
	file, err := os.OpenFile(r.path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(to), file.Close())
}
