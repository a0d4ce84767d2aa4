package hostapi

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mountRoot reports whether an open file is what is mounted somewhere, such as the hosts file of most containers. No other file can be renamed
// over it. Kernels before 5.8 do not tell.
func mountRoot(fd int) bool {
	var stat unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &stat)
	return err == nil && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// overwrite writes content into the very file that was read. That is not one step: whoever reads meanwhile may see a part of both contents, and a
// machine that loses its power may keep it. What is avoidable of it is avoided: the file is never empty in between, the room that a longer
// content takes is reserved before anything is written, and where writing fails nevertheless the former content is put back.
func (r *regular) overwrite(content []byte) (err error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(procPath(int(r.file.Fd())), unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), r.file.Name())
	defer func() { err = errors.Join(err, file.Close()) }()
	if !r.isUnchanged() {
		return errChanged
	}
	if len(content) > len(r.content) {
		// Not every file system can, and one that cannot says so when it is written to.
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(content)))
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return err
		}
	}
	if err := write(file, content); err != nil {
		if back := write(file, r.content); back != nil {
			return &tornError{err: errors.Join(err, back)}
		}
		return err
	}
	return nil
}

// write makes content the content of a file and has it on disk. The file gets its length last.
func write(file *os.File, content []byte) error {
	if _, err := file.WriteAt(content, 0); err != nil {
		return err
	}
	if err := file.Truncate(int64(len(content))); err != nil {
		return err
	}
	return file.Sync()
}
