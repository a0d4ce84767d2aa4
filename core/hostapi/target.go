package hostapi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/core/eintr"
)

// openDirectory opens an absolute, clean path without following symbolic links. Everything else is done relative to the open directory, so changing
// the path cannot lead the core elsewhere.
func openDirectory(path string) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := eintr.Retry(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, how) })
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// guarded fails if others could put a file of their choice into the directory while the core looks. A hard link to any file of the file system would
// do, and it cannot be told for sure while others may rename. So only the core's user and root may write to the directory. Where another user owns
// it, only that user's own files are accepted (see acceptable).
func guarded(directory *os.File) (owner uint32, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(directory.Fd()), &stat); err != nil {
		return 0, err
	}
	others := uint32(0o022)
	if os.Geteuid() != 0 {
		// A user's own group is often the user alone, and a core that is not root reads nothing that its roles, of the same user, could not read.
		others = 0o002
	}
	if stat.Mode&others != 0 {
		return 0, newFileError(codes.FailedPrecondition, nil, "others may write to its directory (mode %04o) and could lead the core to any other file: "+
			"run chmod go-w on the directory, or grant another path", stat.Mode&0o7777)
	}
	return stat.Uid, nil
}

// trusted reports whether a user can do everything that the core does anyway.
func trusted(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// regular is an open regular file and its content.
type regular struct {
	file    *os.File
	stat    unix.Stat_t
	content []byte
	mounted bool
}

// openRegular opens and reads a regular file of the directory. It checks the file before it opens it, because opening a device or a pipe can have
// side effects.
func openRegular(directory *os.File, name string) (*regular, error) {
	owner, err := guarded(directory)
	if err != nil {
		return nil, err
	}
	fd, err := eintr.Retry(func() (int, error) {
		return unix.Openat(int(directory.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.ENOENT) && !trusted(owner) {
		// A file that the core makes there would belong to the core, and be refused from then on.
		return nil, refuseForeignDirectory(owner)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	mounted := mountRoot(fd)
	if err := acceptable(&stat, owner, mounted); err != nil {
		return nil, err
	}
	// The path in /proc opens exactly the file that was checked, whatever has its name now.
	opened, err := eintr.Retry(func() (int, error) {
		return unix.Open(procPath(fd), unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(opened), name)
	content, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err == nil && len(content) > maxFileSize {
		err = errTooLarge
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &regular{file: file, stat: stat, content: content, mounted: mounted}, nil
}

// procPath is a path that reopens the file of a descriptor.
func procPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// acceptable returns nil for a file that a role may read and replace, in a directory of this owner.
func acceptable(stat *unix.Stat_t, owner uint32, mounted bool) error {
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return unix.ELOOP
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return errNotRegular
	case stat.Nlink == 0 && !mounted:
		return errChanged
	case stat.Nlink > 1:
		// The other name would keep the old content.
		return errLinked
	case !trusted(owner) && stat.Uid != owner:
		return refuseForeignDirectory(owner)
	case stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return errSetID
	case stat.Size > maxFileSize:
		return errTooLarge
	}
	return nil
}

// createTemporary makes an empty file with a new name that only its owner may read.
func createTemporary(directory *os.File) (*os.File, string, error) {
	name := temporaryPrefix + strings.ToLower(rand.Text())
	fd, err := eintr.Retry(func() (int, error) {
		return unix.Openat(int(directory.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), name), name, nil
}

// moveNew renames a file of the directory to a free name.
func moveNew(directory *os.File, from, to string) error {
	err := renameIn(directory, from, to, unix.RENAME_NOREPLACE)
	if unsupported(err) {
		// The file system does not know RENAME_NOREPLACE. A hard link refuses a taken name as well.
		fd := int(directory.Fd())
		if err = unix.Linkat(fd, from, fd, to, 0); err == nil {
			err = unlinkIn(directory, from)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		return errChanged
	}
	return err
}

func renameIn(directory *os.File, from, to string, flags uint) error {
	fd := int(directory.Fd())
	return unix.Renameat2(fd, from, fd, to, flags)
}

func unlinkIn(directory *os.File, name string) error {
	return unix.Unlinkat(int(directory.Fd()), name, 0)
}

// unsupported reports whether the file system does not know the flags of a rename.
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}
