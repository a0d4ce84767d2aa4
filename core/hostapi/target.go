package hostapi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openDirectory opens an absolute, clean path of a directory of which no component is a symbolic link. Everything afterwards is done
// relative to it, so that nobody can lead the core elsewhere by changing the path.
func openDirectory(path string) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := retry(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, how) })
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		// A kernel before 5.6, or a sandbox around the core that does not know the call.
		return walkDirectory(path)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// walkDirectory is openDirectory by one step for each component.
func walkDirectory(path string) (*os.File, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := retry(func() (int, error) { return unix.Open("/", unix.O_PATH|flags, 0) })
	if err != nil {
		return nil, err
	}
	for component := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if component == "" {
			continue
		}
		next, err := retry(func() (int, error) { return unix.Openat(fd, component, unix.O_PATH|flags, 0) })
		if errors.Is(err, unix.ENOTDIR) && isSymlink(fd, component) {
			err = unix.ELOOP
		}
		unix.Close(fd)
		if err != nil {
			return nil, err
		}
		fd = next
	}
	// A descriptor that only names the directory cannot sync it.
	opened, err := retry(func() (int, error) { return unix.Openat(fd, ".", unix.O_RDONLY|flags, 0) })
	unix.Close(fd)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(opened), path), nil
}

func isSymlink(directory int, name string) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(directory, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK
}

// guarded returns nil if nobody can put a file of somebody else's choice into the directory while the core looks: a link to any file of the
// file system would do, and that it is one cannot be told for sure while others may rename. So only the core's user and root may write
// the directory. Where the owner is another user, this user's own files are all that can be had there (see acceptable).
func guarded(directory *os.File) (owner uint32, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(directory.Fd()), &stat); err != nil {
		return 0, err
	}
	others := uint32(0o022)
	if os.Geteuid() != 0 {
		// The user's own group is often the user alone, and a core that is not root reads nothing that its roles, of the same user, could not.
		others = 0o002
	}
	if stat.Mode&others != 0 {
		return 0, &unguardedError{uid: stat.Uid, mode: stat.Mode & 0o7777}
	}
	return stat.Uid, nil
}

// trusted reports whether a user could do whatever the core does without asking it.
func trusted(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// regular is an open regular file and what it held when it was opened.
type regular struct {
	file    *os.File
	stat    unix.Stat_t
	content []byte
	mounted bool
}

// openRegular opens a regular file of the directory and reads it. The file is looked at before it is opened: opening a device or a pipe can
// have effects of its own.
func openRegular(directory *os.File, name string) (*regular, error) {
	owner, err := guarded(directory)
	if err != nil {
		return nil, err
	}
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(directory.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.ENOENT) && !trusted(owner) {
		// A file that the core makes there would be the core's, and refused from then on.
		return nil, &unguardedError{uid: owner}
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
	// By way of /proc the very file is opened that was looked at, whatever has its name now.
	opened, err := retry(func() (int, error) {
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

// procPath is a path by which the very file of a descriptor is opened once more.
func procPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// acceptable returns nil for a file that a role may be given to read and to replace, in a directory of this owner.
func acceptable(stat *unix.Stat_t, owner uint32, mounted bool) error {
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return unix.ELOOP
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return errNotRegular
	case stat.Nlink == 0 && !mounted:
		return errChanged
	case stat.Nlink > 1:
		// The file is known under another name too, which would keep the old content.
		return errLinked
	case !trusted(owner) && stat.Uid != owner:
		return &unguardedError{uid: owner}
	case stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return errSetID
	case stat.Size > maxFileSize:
		return errTooLarge
	}
	return nil
}

// createTemporary makes an empty file with a new name in the directory, open for writing, which only its owner may read.
func createTemporary(directory *os.File) (*os.File, string, error) {
	name := temporaryPrefix + strings.ToLower(rand.Text())
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(directory.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), name), name, nil
}

// moveNew renames a file of the directory to a name that is not taken.
func moveNew(directory *os.File, from, to string) error {
	err := renameIn(directory, from, to, unix.RENAME_NOREPLACE)
	if unsupported(err) {
		// A file system that knows no such rename: a new link refuses a taken name as well.
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

// unsupported reports whether a rename failed because the file system or the kernel does not know its flags.
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}

// retry repeats an opening that a signal interrupted.
func retry(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
