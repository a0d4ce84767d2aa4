package hostapi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
	"github.com/reeveproject/reeve/proto/hostfile"
)

// regular is an open regular file and its content.
type regular struct {
	*hostfile.File
	content []byte
	// attributes are read by exchange.
	attributes attributes
}

// openRegular opens and reads a regular file of the directory.
func openRegular(directory *os.File, name string) (*regular, error) {
	file, err := hostfile.Open(directory, name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, hostfile.MaxSize+1))
	if err == nil && len(content) > hostfile.MaxSize {
		err = hostfile.ErrTooLarge
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &regular{File: file, content: content}, nil
}

// procPath is a path that reopens the file of a descriptor.
func procPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// createTemporary makes an empty file with a new name that only its owner may open.
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
		return hostfile.ErrChanged
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
