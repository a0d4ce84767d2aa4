package store

import (
	"errors"
	"path/filepath"

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

// ahead is how much the database has beyond its size, in bytes: etcd makes it larger by so much at a time.
const ahead = 16 << 20

// allocate fills the holes that the database has on the disk, and takes the piece by which it grows next: etcd makes the file larger without taking the room, and a
// commit that finds none where the file already is ends etcd. On a disk that somebody else fills, the store then goes on with what is its own, as it does with its log.
// Where there is hardly room, none is taken: the last of it is for those who have nothing yet.
func (s *Store) allocate() {
	if s.allocated.unable {
		return
	}
	path := datadir.ToBackendFileName(etcdDirectory(s.directory))
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil || file.Ino == s.allocated.inode && file.Size == s.allocated.size {
		return
	}
	var room unix.Statfs_t
	missing := max(file.Size+ahead-file.Blocks*512, 0)
	if err := unix.Statfs(filepath.Dir(path), &room); err != nil || int64(room.Bavail)*room.Bsize < 2*missing {
		return // it is tried again
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // it is tried again
	}
	defer func() { _ = unix.Close(fd) }()
	switch err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, file.Size+ahead); {
	case err == nil:
		s.allocated = allocation{inode: file.Ino, size: file.Size}
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		s.log.Warn("the file system cannot reserve room for the store: where it becomes full, the store stops", "file", path)
		s.allocated.unable = true
	}
}
