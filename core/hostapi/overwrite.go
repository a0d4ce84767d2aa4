package hostapi

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/eintr"
	"github.com/reeveproject/reeve/proto/hostfile"
)

// overwrite writes content into the file that was read. This is not atomic: a reader may see a mix of both contents, and a power failure may leave
// it. It limits the damage: the file is never empty, the space for a longer content is reserved first, and if writing fails the former content is
// restored.
func (r *regular) overwrite(content []byte) (err error) {
	fd, err := eintr.Retry(func() (int, error) {
		return unix.Open(procPath(int(r.Fd())), unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), r.Name())
	defer func() { err = errors.Join(err, file.Close()) }()
	if !r.isUnchanged() {
		return hostfile.ErrChanged
	}
	if len(content) > len(r.content) {
		// A file system that cannot reserve space reports a full disk when it is written.
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(content)))
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return err
		}
	}
	if err := write(file, content); err != nil {
		if back := write(file, r.content); back != nil {
			err = errors.Join(err, back)
			return hostfile.Errorf(codes.Internal, err, "it is a mount point and was written in place; that failed halfway, and restoring the former content failed too (%v): "+
				"free some space and repair the file", err)
		}
		return err
	}
	return nil
}

// write replaces a file's content in place and syncs it. The file gets its new length last.
func write(file *os.File, content []byte) error {
	if _, err := file.WriteAt(content, 0); err != nil {
		return err
	}
	if err := file.Truncate(int64(len(content))); err != nil {
		return err
	}
	return file.Sync()
}
