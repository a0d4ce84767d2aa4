package logfile

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
)

// Limit is how large a file grows, in bytes, before another one is begun: some hundred thousand lines, which with the file before it bounds what a
// log takes of the disk.
const Limit = 16 << 20

// File is a log file that is replaced when it is too large. It is safe for concurrent use.
type File struct {
	path  string
	limit int64
	// stderr is the descriptor that is made to be the file as well; -1: none.
	stderr int

	mu   sync.Mutex
	file *os.File
	info os.FileInfo // of file, as it was when it was opened
	size int64
}

// Option changes how a File works.
type Option func(*File)

// WithLimit sets another limit than Limit, in bytes.
func WithLimit(limit int64) Option { return func(f *File) { f.limit = limit } }

// WithStandardError makes the process's standard error the file too, so that what the Go runtime writes when it ends the process is in the log. It stays
// that when the File is closed.
func WithStandardError() Option { return func(f *File) { f.stderr = unix.Stderr } }

// Open opens the file at path, or makes it, readable by its user only, and appends to it.
func Open(path string, options ...Option) (*File, error) {
	f := &File{path: path, limit: Limit, stderr: -1}
	for _, option := range options {
		option(f)
	}
	file, err := open(path)
	if err == nil {
		err = f.use(file)
	}
	if err != nil {
		return nil, fmt.Errorf("logfile: %w", err)
	}
	return f, nil
}

func open(path string) (*os.File, error) {
	return storage.OpenRegular(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
}

// use has the log go on in a file, which it closes on an error.
func (f *File) use(file *os.File) error {
	info, err := file.Stat()
	if err == nil && f.stderr >= 0 {
		err = unix.Dup3(int(file.Fd()), f.stderr, 0)
	}
	if err != nil {
		_ = file.Close()
		return err
	}
	if f.file != nil {
		_ = f.file.Close()
	}
	f.file, f.info, f.size = file, info, info.Size()
	return nil
}

// Write appends p. A new file is begun first if it would not fit, and where another File of the same path has begun one, the log goes on in that.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := os.Lstat(f.path)
	other := err == nil && !os.SameFile(now, f.info)
	if other || f.size > 0 && f.size+int64(len(p)) > f.limit {
		f.rotate(int64(len(p)))
	}
	n, err := f.file.Write(p)
	f.size += int64(n)
	return n, err
}

// rotate begins a new file, in which there is room for more. Where that fails, the log goes on in the one that there is, and it is tried again after as much as it may
// hold. If it fails again, that file is emptied: a log must not fill the disk.
func (f *File) rotate(more int64) {
	// It may not be the file that is open: an operator may have emptied it or taken it away, and the last time perhaps no other one could be made.
	info, err := os.Lstat(f.path)
	full := err == nil && info.Size()+more > f.limit
	path := f.path
	if full {
		// The old file keeps its name where no new one can be made.
		path += ".new"
	}
	next, err := open(path)
	if err == nil && full {
		if err = os.Rename(f.path, f.path+".1"); err == nil {
			err = os.Rename(path, f.path)
		}
		if err != nil {
			err = errors.Join(err, next.Close(), os.Remove(path))
		}
	}
	if err == nil {
		err = f.use(next)
	}
	if err == nil {
		return
	}
	f.size = 0
	if info, statErr := f.file.Stat(); statErr == nil && info.Size() > 2*f.limit {
		_ = f.file.Truncate(0)
	}
	_, _ = fmt.Fprintf(f.file, "logfile: a new log file cannot be begun, this one goes on: %v\n", err)
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
