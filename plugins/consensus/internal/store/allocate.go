package store

import (
	"errors"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"golang.org/x/sys/unix"
)

// allocation is what of the database has its room on the disk.
type allocation struct {
	// inode and size are of the file whose holes were filled.
	inode uint64
	size  int64
	// unable says that the file system cannot do it.
	unable bool
}

// allocate fills the holes that the database has on the disk: it is made larger by 16 MiB at a time, without taking the room, and a commit that finds no room for
// what the file has already ends etcd. On a disk that somebody else fills, the store then goes on with what is its own.
func (s *Store) allocate() {
	if s.allocated.unable {
		return
	}
	path := datadir.ToBackendFileName(etcdDirectory(s.directory))
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil || file.Ino == s.allocated.inode && file.Size == s.allocated.size {
		return
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // it is tried again
	}
	defer func() { _ = unix.Close(fd) }()
	switch err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, file.Size); {
	case err == nil:
		s.allocated = allocation{inode: file.Ino, size: file.Size}
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		s.log.Warn("the file system cannot reserve room for the store: where it becomes full, the store stops", "file", path)
		s.allocated.unable = true
	}
}
