package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/awake"
)

// Executable is the bytes of one executable, verified: whatever becomes of the file from which they came, they are what File executes. It belongs to
// whoever opened it; others may close theirs.
type Executable struct {
	digest string
	path   string
	// file is a description of its own, so that a lease on it is nobody else's.
	file *os.File
	// print is what the file was like when it was verified; nil if the file is sealed and cannot change.
	print   *fingerprint
	release func()
	once    sync.Once
}

// Digest is "sha256:" and hex.
func (e *Executable) Digest() string { return e.digest }

// File is open for reading and can be executed. It is closed by Close.
func (e *Executable) File() *os.File { return e.file }

// Close lets go of the executable; a nil one is none. A process that runs it is not disturbed. Only the first call does something.
func (e *Executable) Close() error {
	if e == nil {
		return nil
	}
	var err error
	e.once.Do(func() {
		err = e.file.Close()
		e.release()
	})
	return err
}

// Path is where the store keeps it.
func (e *Executable) Path() string { return e.path }

// Hold makes sure that the file is as it was verified and stays so until let is called: a process that was started in the meantime runs the verified
// bytes, and holds the file by itself from then on. The error is ETXTBSY while somebody has the file open for writing.
//
// It is a lease: whoever would open the file for writing, root too, waits for let. Where the file system has none, it is only looked at.
func (e *Executable) Hold() (let func(), err error) {
	if e.print == nil {
		return func() {}, nil
	}
	if let, err = lease(e.file, e.path); err != nil {
		return nil, err
	}
	now, err := fingerprintOf(e.file)
	if err == nil && now != *e.print {
		err = &MissingError{Digest: e.digest, Reason: e.path + " was changed after it was verified"}
	}
	if err != nil {
		let()
		return nil, err
	}
	return let, nil
}

// lease keeps everybody from opening a file for writing until let is called: they wait. The error is ETXTBSY while somebody has it open for writing. Where the
// file system has no leases, nobody is kept.
func lease(file *os.File, path string) (let func(), err error) {
	set := func(kind int) (err error) {
		_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, kind)
		return err
	}
	switch err := set(unix.F_RDLCK); {
	case err == nil:
		return func() { _ = set(unix.F_UNLCK) }, nil
	case errors.Is(err, unix.EAGAIN):
		return nil, &os.PathError{Op: "lease", Path: path, Err: syscall.ETXTBSY}
	}
	return func() {}, nil
}

// undisturbed is a lease on a file that is about to be verified, on which nobody has one yet. A write that is under way changes the times of the file when it begins and its
// content later, so that what is read meanwhile is told from what is there afterwards by nothing: it is waited for. So is a clock that may not have ticked since
// the file was changed: what is changed within the same tick would have the same times.
func undisturbed(file *os.File, path string) (let func(), err error) {
	err = RetryBusy(context.Background(), func() error {
		let, err = lease(file, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := fingerprintOf(file)
	if err != nil {
		let()
		return nil, err
	}
	// A file of the future, by a clock that was set back, is no reason to wait for it.
	if young := tick - time.Since(time.Unix(info.ctime.Unix())); young > 0 && young <= tick {
		time.Sleep(young)
	}
	return let, nil
}

// RetryBusy calls try again while its error is ETXTBSY: somebody has an executable open for writing. It does so for 5 s of the time in which the core runs, and
// no longer than the context lasts.
func RetryBusy(ctx context.Context, try func() error) error {
	ctx, cancel := awake.WithTimeout(ctx, busyFor)
	defer cancel()
	for pause := busyPause; ; pause = min(2*pause, 100*time.Millisecond) {
		err := try()
		if !errors.Is(err, syscall.ETXTBSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

const (
	busyFor = 5 * time.Second
	// busyPause is the first pause between two tries.
	busyPause = time.Millisecond
	// tick is longer than what a file system's clock may stand still: a tick of the slowest kernel is 10 ms.
	tick = 12 * time.Millisecond
)

// fingerprint is what changes when a file is changed. Only the owner of the file, the core, could forge the rest of it, and nobody can
// forge ctime. A file that was removed or replaced has another ctime too, since it has a name less.
type fingerprint struct {
	device, inode uint64
	size          int64
	mtime, ctime  syscall.Timespec
}

func fingerprintOf(file *os.File) (fingerprint, error) {
	info, err := file.Stat()
	if err != nil {
		return fingerprint{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fingerprint{}, fmt.Errorf("%s: no status", file.Name())
	}
	return fingerprint{device: stat.Dev, inode: stat.Ino, size: stat.Size, mtime: stat.Mtim, ctime: stat.Ctim}, nil
}

// entry is what the store has open of one executable.
type entry struct {
	// users is how many have it, and unused since when it is known that nobody wants it. Both are guarded by the store's lock.
	users  int
	unused time.Time

	mu sync.Mutex // so that a file is read once, however many want it
	// file is the stored file, and print what it was like when it was verified; nil: it was not.
	file  *os.File
	print fingerprint
	// sealed is a copy in memory that nobody can change: as an ordinary user, whose roles could change the file.
	sealed *os.File
}

func (e *entry) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drop()
}

func (e *entry) drop() error {
	var problems []error
	for _, file := range []*os.File{e.file, e.sealed} {
		if file != nil {
			problems = append(problems, file.Close())
		}
	}
	e.file, e.sealed = nil, nil
	return errors.Join(problems...)
}

// open verifies the file if that has not been done, and returns a reference of its own to its bytes.
func (e *entry) open(path, digest string, root bool) (*Executable, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.current(path) {
		if err := e.drop(); err != nil {
			return nil, err
		}
		if err := e.verify(path, digest, root); err != nil {
			return nil, errors.Join(err, e.drop())
		}
	}
	opened := &Executable{digest: digest, path: path}
	from := e.sealed
	if from == nil {
		from = e.file
		verified := e.print
		opened.print = &verified
	}
	var err error
	if opened.file, err = reopen(from); err != nil {
		return nil, fmt.Errorf("plugin: executable %s: %w", Short(digest), err)
	}
	return opened, nil
}

// current reports whether the file under the path is the one that was verified, and is as it was then.
func (e *entry) current(path string) bool {
	if e.file == nil {
		return false
	}
	now, err := fingerprintOf(e.file)
	if err != nil || now != e.print {
		return false
	}
	var there unix.Stat_t
	err = unix.Lstat(path, &there)
	return err == nil && there.Dev == now.device && there.Ino == now.inode
}

// verify opens the file and reads it once.
func (e *entry) verify(path, digest string, root bool) error {
	missing := func(reason string) error { return &MissingError{Digest: digest, Reason: reason} }
	// A pipe in its place is not waited for.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return missing("is not stored on this node")
	}
	if err != nil {
		return missing(err.Error())
	}
	e.file = file
	if reason, err := acceptable(file, path, root); err != nil {
		return missing(err.Error())
	} else if reason != "" {
		return missing(reason)
	}
	sum := sha256.New()
	if root {
		let, err := undisturbed(file, path)
		if err != nil {
			return missing(err.Error())
		}
		defer let()
	}
	if e.print, err = fingerprintOf(file); err != nil {
		return missing(err.Error())
	}
	if root {
		_, err = io.Copy(sum, file)
	} else {
		// What is hashed is what is copied, and what was copied is sealed.
		e.sealed, err = seal(path, io.TeeReader(file, sum))
	}
	var refused *sealError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("plugin: executable %s: %w", Short(digest), err)
	case err != nil:
		return missing(err.Error())
	}
	if found := digestPrefix + hex.EncodeToString(sum.Sum(nil)); found != digest {
		return missing(fmt.Sprintf("%s was changed: its content is %s", path, Short(found)))
	}
	if after, err := fingerprintOf(file); err != nil || after != e.print {
		return missing(path + " was changed while it was read")
	}
	return nil
}

// acceptable says what is wrong with a file that nobody but the core may be able to change. A file of an earlier core that roles can read is made one
// that they cannot.
func acceptable(file *os.File, path string, root bool) (reason string, err error) {
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case !ok || !info.Mode().IsRegular():
		return path + " is not a regular file", nil
	case int(stat.Uid) != os.Geteuid() || mode&0o022 != 0:
		return path + " can be written by others than the core", nil
	case mode&0o111 != 0o111:
		return path + " is not executable", nil
	case info.Size() > MaxExecutable:
		// Where somebody can write to the disk while the node is off, it is not to be hashed for hours.
		return fmt.Sprintf("%s is larger than %d MiB", path, MaxExecutable>>20), nil
	case root && (mode != modeAsRoot || stat.Gid != 0):
		return "", errors.Join(file.Chown(0, 0), file.Chmod(modeAsRoot))
	}
	return "", nil
}

// reopen opens a file once more, by its descriptor: the description is another one, for reading only.
func reopen(file *os.File) (*os.File, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "reopen", Path: file.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
