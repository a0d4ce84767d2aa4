package store

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxMemfdName is the longest name of a file in memory, in bytes.
const maxMemfdName = 249

// sealError says that the kernel does not give the core a file in memory that can be executed and not be changed.
type sealError struct{ err error }

func (e *sealError) Error() string {
	return fmt.Sprintf("the kernel gives no sealed memory to execute it from: %v (is the sysctl vm.memfd_noexec 2? the limit on memory too low?)", e.err)
}

func (e *sealError) Unwrap() error { return e.err }

// seal copies what a reader yields into memory, where from then on nobody can change it, the core included. The file is open for reading only: one that
// somebody has open for writing cannot be executed.
func seal(name string, content io.Reader) (sealed *os.File, err error) {
	// The name is what people see as the executable of a process.
	fd, err := makeMemfd(name[:min(len(name), maxMemfdName)])
	if err != nil {
		return nil, &sealError{err}
	}
	writable := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, writable.Close()) }()
	if _, err := io.Copy(writable, content); err != nil {
		return nil, err
	}
	// Whoever may read it may execute it: a role is looked after by its environment where it has no user of its own.
	if err := writable.Chmod(modeAsUser); err != nil {
		return nil, &sealError{err}
	}
	if err := addSeals(fd); err != nil {
		return nil, &sealError{err}
	}
	return reopen(writable)
}

func makeMemfd(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags) // before Linux 6.3, where all of them can be executed
	}
	return fd, err
}

func addSeals(fd int) error {
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	for _, seals := range []int{all | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_EXEC, all | unix.F_SEAL_FUTURE_WRITE, all} {
		// What a kernel does not know it refuses as a whole: without them nothing can be written either.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return unix.EINVAL
}
