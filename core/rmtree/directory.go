package rmtree

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

// namesBuffer is the size of the buffer for directory entries, in bytes.
const namesBuffer = 16 << 10

// directory is an open directory. Operations on its entries follow it if it is moved.
type directory struct {
	fd    int
	mount mount
}

// mount identifies the mount of a file. Other mounts are never entered.
type mount struct {
	id           uint64
	major, minor uint32
}

// openTrusted opens a directory whose path nobody else can change.
func openTrusted(path string) (*directory, error) {
	fd, err := eintr.Retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	d := &directory{fd: fd}
	if _, d.mount, err = describe(fd); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// open opens an entry that is a directory on the same mount, and makes it accessible to its owner.
func (d *directory) open(name string) (*directory, error) {
	// O_PATH first: another file system that is mounted there must not be asked anything.
	held, err := eintr.Retry(func() (int, error) {
		return unix.Openat(d.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(held) }()
	mode, where, err := describe(held)
	if err != nil {
		return nil, err
	}
	if where != d.mount {
		return nil, unix.EXDEV
	}
	if mode&0o700 != 0o700 {
		// By descriptor, because the name may belong to another file by now. If it fails, so does the open below.
		_ = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", held), 0o700)
	}
	fd, err := eintr.Retry(func() (int, error) {
		return unix.Openat(held, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	return &directory{fd: fd, mount: where}, nil
}

func (d *directory) close() { _ = unix.Close(d.fd) }

// each visits the current entries in batches; visit may remove them. It ends early with the context.
func (d *directory) each(ctx context.Context, visit func(name string)) error {
	if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	buffer := make([]byte, namesBuffer)
	for {
		n, err := eintr.Retry(func() (int, error) { return unix.ReadDirent(d.fd, buffer) })
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		_, _, names := unix.ParseDirent(buffer[:n], -1, nil)
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			visit(name)
		}
	}
}

// unlink removes an entry. nil if it does not exist, ENOTEMPTY if it is a directory that is not empty.
func (d *directory) unlink(name string) error {
	_, err := eintr.Retry(func() (int, error) { return 0, unix.Unlinkat(d.fd, name, 0) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	// EISDIR, or EPERM by POSIX: it is a directory, or must not be removed.
	again := d.rmdir(name)
	switch {
	case again == nil, errors.Is(again, unix.ENOENT):
		return nil
	case errors.Is(again, unix.EEXIST):
		return unix.ENOTEMPTY
	case errors.Is(again, unix.ENOTDIR):
		return err
	}
	return again
}

func (d *directory) rmdir(name string) error {
	_, err := eintr.Retry(func() (int, error) { return 0, unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) })
	return err
}

// describe returns a file's mode and mount without asking a file system that may hang.
func describe(fd int) (mode uint16, where mount, err error) {
	var stat unix.Statx_t
	_, err = eintr.Retry(func() (int, error) {
		return 0, unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MODE|unix.STATX_MNT_ID, &stat)
	})
	if err != nil {
		return 0, mount{}, err
	}
	where = mount{major: stat.Dev_major, minor: stat.Dev_minor}
	if stat.Mask&unix.STATX_MNT_ID != 0 {
		where.id = stat.Mnt_id
	}
	return stat.Mode, where, nil
}
