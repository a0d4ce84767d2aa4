package hostfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/eintr"
)

// MaxSize is the largest file that a role reads or replaces: block lists for the hosts file have some MiB. The core holds such a file in memory.
const MaxSize = 16 << 20

// OpenDirectory opens an absolute, clean path without following symbolic links. Everything else is done relative to the open directory, so changing
// the path cannot lead the core elsewhere.
func OpenDirectory(path string) (*os.File, error) {
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

// File is an open regular file that a role may read.
type File struct {
	*os.File
	Stat unix.Stat_t
	// Mounted says that it is a mount point, such as the hosts file of most containers. Nothing can be renamed over it.
	Mounted bool
	fixed   bool
}

// Open opens a regular file of the directory for reading. It checks the file before it opens it, because opening a device or a pipe can have side
// effects.
func Open(directory *os.File, name string) (*File, error) {
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
	found := &File{}
	if err := unix.Fstat(fd, &found.Stat); err != nil {
		return nil, err
	}
	attributes := attributesOf(fd)
	found.Mounted, found.fixed = attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, attributes&fixedAttributes != 0
	if err := acceptable(&found.Stat, owner, found.Mounted); err != nil {
		return nil, err
	}
	// The path in /proc opens exactly the file that was checked, whatever has its name now.
	opened, err := eintr.Retry(func() (int, error) {
		return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	found.File = os.NewFile(uintptr(opened), name)
	if _, err := unix.Fgetxattr(opened, "security.capability", nil); err == nil {
		return nil, errors.Join(errCapable, found.Close())
	}
	return found, nil
}

// Replaceable returns nil if the core may try to replace a file of the directory; nil: a file that is to be made. What only an attempt shows it leaves to
// the attempt.
func Replaceable(directory *os.File, file *File) error {
	switch {
	case file != nil && file.fixed:
		return errImmutable
	case file != nil && file.Mounted:
		return nil
	case attributesOf(int(directory.Fd()))&fixedAttributes != 0:
		return errFixed
	}
	return nil
}

// RefuseOwner refuses a file whose owner the core cannot give to a new file.
func RefuseOwner(stat *unix.Stat_t, err error) error {
	return Errorf(codes.PermissionDenied, err, "it belongs to %d:%d, and the core's user cannot create files of that owner: run the core as root, or give the file to the core's user",
		stat.Uid, stat.Gid)
}

// Check returns nil if the core, run by the caller's user, will most likely be able to keep the file, or an Error that says why not. It writes nothing.
func Check(path string) error {
	const doing = "replace"
	directory, err := OpenDirectory(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return Errorf(codes.FailedPrecondition, err, "cannot %s %s: its directory does not exist: make %s first", doing, path, filepath.Dir(path))
	}
	if err != nil {
		return Explain(err, doing, path)
	}
	defer directory.Close()
	file, err := Open(directory, filepath.Base(path))
	switch {
	case err == nil:
		defer file.Close()
	case !errors.Is(err, unix.ENOENT):
		return Explain(err, doing, path)
	}
	if err := Replaceable(directory, file); err != nil {
		return Explain(err, doing, path)
	}
	written := "."
	switch {
	case file != nil && file.Mounted:
		written = filepath.Base(path)
	case file != nil && os.Geteuid() != 0 && int(file.Stat.Uid) != os.Geteuid():
		return Explain(RefuseOwner(&file.Stat, unix.EPERM), doing, path)
	}
	if err := unix.Faccessat(int(directory.Fd()), written, unix.W_OK, unix.AT_EACCESS); err != nil {
		return Explain(err, doing, path)
	}
	return nil
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
		return 0, Errorf(codes.FailedPrecondition, nil, "others may write to its directory (mode %04o) and could lead the core to any other file: "+
			"run chmod go-w on the directory, or grant another path", stat.Mode&0o7777)
	}
	return stat.Uid, nil
}

// trusted reports whether a user can do everything that the core does anyway.
func trusted(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// acceptable returns nil for a file that a role may read and replace, in a directory of this owner.
func acceptable(stat *unix.Stat_t, owner uint32, mounted bool) error {
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return unix.ELOOP
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return errNotRegular
	case stat.Nlink == 0 && !mounted:
		return ErrChanged
	case stat.Nlink > 1:
		// The other name would keep the old content.
		return errLinked
	case !trusted(owner) && stat.Uid != owner:
		return refuseForeignDirectory(owner)
	case stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return errSetID
	case stat.Size > MaxSize:
		return ErrTooLarge
	}
	return nil
}

// fixedAttributes are those with which a file or directory cannot be replaced or changed by anybody.
const fixedAttributes = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// attributesOf returns the attributes of an open file, as far as its file system tells them.
func attributesOf(fd int) uint64 {
	var stat unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &stat); err != nil {
		return 0
	}
	return stat.Attributes
}
