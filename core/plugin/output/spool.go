package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	// spoolSize is how much of what an instance writes to its standard error may wait for the core, in bytes: what a verbose role writes in minutes, and
	// little enough of the memory that it is.
	spoolSize = 16 << 20
	// spoolPiece is what room is given back in, in bytes: a multiple of every page and block, since a part of one is never given back.
	spoolPiece = 64 << 10
	// spoolFile is the file in the directory of a spool.
	spoolFile = "err"
)

// spool is what an instance has written to its standard error and the core has not read yet. It is a file, alone on a tmpfs of spoolSize: however fast the
// instance writes, and however long no core reads, it takes no more than that, because the kernel refuses to write more (ENOSPC). And it is there after
// both of them have ended. Where this process may not mount, the file is as large as it is fast until it is read.
//
// Its offsets only grow, unless the instance makes it shorter, and what was read is taken out of its beginning: so nothing is lost between reading and giving
// back.
type spool struct {
	path string
	file *os.File
	// bounded says that it is on a tmpfs of its own.
	bounded bool
	// given is how much of its beginning was given back.
	given int64
}

// makeSpool makes the spool of an instance that is to be launched. write is the instance's end, which the caller closes once the process has it.
func makeSpool(log hclog.Logger, dir string) (s *spool, write *os.File, err error) {
	// Left by an instance of the same number, which can only be when the counters were lost.
	if err := removeSpool(dir); err != nil {
		return nil, nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	err = unix.Mount("reeve", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("size=%d,nr_inodes=2,mode=0700", spoolSize))
	switch {
	case err == nil:
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSYS):
		if os.Geteuid() == 0 {
			log.Warn("cannot mount a tmpfs: what the instance writes to its standard error takes room without a bound until it is read", "error", err)
		}
	default:
		return nil, nil, fmt.Errorf("mount the tmpfs for its standard error on %s: %w", dir, err)
	}
	path := filepath.Join(dir, spoolFile)
	write, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if s, err = openSpool(dir); err != nil {
		return nil, nil, errors.Join(err, write.Close())
	}
	return s, write, nil
}

// openSpool opens one that is there.
func openSpool(dir string) (*spool, error) {
	path := filepath.Join(dir, spoolFile)
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	s := &spool{path: path, file: file}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err == nil {
		s.bounded = stat.Type == unix.TMPFS_MAGIC && int64(stat.Blocks)*stat.Bsize <= spoolSize
	}
	return s, nil
}

func (s *spool) close() error { return s.file.Close() }

func (s *spool) at() int64 {
	at, err := s.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return at
}

// seek sets where is read next.
func (s *spool) seek(at int64) { _, _ = s.file.Seek(at, io.SeekStart) }

func (s *spool) skip(bytes int64) { _, _ = s.file.Seek(bytes, io.SeekCurrent) }

// remaining is how much has not been read. The instance has the file open for writing and can make it shorter: then it is read from its beginning.
func (s *spool) remaining() int64 {
	info, err := s.file.Stat()
	if err != nil {
		return 0
	}
	at := s.at()
	if info.Size() < at {
		s.seek(0)
		at, s.given = 0, 0
	}
	return info.Size() - at
}

// giveBack gives back the room of what is before at, which was read.
func (s *spool) giveBack(at int64) {
	at -= at % spoolPiece
	if at <= s.given {
		return
	}
	_, err := control(s.file, func(fd int) (int, error) {
		return 0, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, s.given, at-s.given)
	})
	switch {
	case err == nil:
		s.given = at
	case errors.Is(err, unix.EOPNOTSUPP) && at > spoolSize && s.file.Truncate(0) == nil:
		// A file system that can only empty files: what was written and not read is lost.
		s.seek(0)
		s.given = 0
	}
}

// removeSpool removes one. What was in it is lost.
func removeSpool(dir string) error {
	// Whoever still has it in a mount namespace of his own keeps no memory by it.
	err := removeFile(filepath.Join(dir, spoolFile))
	if err != nil && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	for {
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) || errors.Is(err, fs.ErrNotExist) {
			break // nothing is mounted there, or by somebody else
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	return removeFile(dir)
}

// control calls a function with the descriptor of a file, which stays nonblocking.
func control(file *os.File, call func(fd int) (int, error)) (result int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(fd uintptr) { result, err = call(int(fd)) }); controlErr != nil {
		return 0, controlErr
	}
	return result, err
}
