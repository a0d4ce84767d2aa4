package snapshotfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// partOf returns the path of a file that is not complete: hidden, beside path, with a name that nobody else gives.
func partOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".reeve-snapshot.part")
}

// File is a file that is being written.
type File struct {
	path string
	part *os.File
}

// Create begins a file, which must not be there yet. Nobody else but the caller may read it.
func Create(path string) (*File, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, taken(path)
	}
	opened, err := openPart(partOf(path))
	if err != nil {
		var known *fault.Error
		if errors.As(err, &known) {
			return nil, err
		}
		return nil, writeFault(err, path)
	}
	if err := own(opened); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return &File{path: path, part: opened}, nil
}

// openPart makes an incomplete file, or opens the one that a command left that was killed. Others may write in the directory: one of theirs they could read, so it is refused.
func openPart(path string) (*os.File, error) {
	opened, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if !errors.Is(err, fs.ErrExist) {
		return opened, err
	}
	opened, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, busy(path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO):
		return nil, foreign(path)
	case err != nil:
		return nil, err
	}
	var is unix.Stat_t
	if err := unix.Fstat(int(opened.Fd()), &is); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	if is.Mode&unix.S_IFMT != unix.S_IFREG || is.Mode&0o077 != 0 || is.Nlink > 1 || int(is.Uid) != os.Geteuid() {
		return nil, errors.Join(foreign(path), opened.Close())
	}
	return opened, nil
}

// own has this process be the only one that writes an incomplete file, and empties it.
func own(opened *os.File) error {
	path := opened.Name()
	if err := unix.Flock(int(opened.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return busy(path)
	}
	// The other one may have given the file its name meanwhile.
	there, err := os.Lstat(path)
	if err != nil {
		return busy(path)
	}
	mine, err := opened.Stat()
	if err != nil || !os.SameFile(there, mine) {
		return busy(path)
	}
	if err := errors.Join(opened.Truncate(0), opened.Chmod(0o600)); err != nil {
		return writeFault(err, path)
	}
	return nil
}

func busy(path string) error {
	return fault.New(fault.Refused, "another reeve writes "+path, "Wait until it is done, or name another file.")
}

func foreign(path string) error {
	return fault.New(fault.Refused, path+" is there, and is not a private file of the user who runs this command", "Remove it, or name a file in another directory.")
}

// Fill writes what comes from the cluster, and returns the header. check says whether the header is what was asked for; it is called before anything is written. progress is
// told how many bytes of how many are there. An error of from is returned as it is.
func (f *File) Fill(from io.Reader, check func(*snapshot.Header) error, progress func(done, all int64)) (*snapshot.Header, error) {
	source := &reading{from: from}
	buffered := bufio.NewReader(source)
	header, err := snapshot.ReadHeader(buffered)
	if err == nil {
		err = check(header)
	}
	if err != nil {
		return nil, source.or(err)
	}
	if _, err := f.part.Write(header.Marshal()); err != nil {
		return nil, writeFault(err, f.path)
	}
	done := header.Size() - header.Manifest.PayloadSize
	content, buffer := header.Payload(buffered), make([]byte, 256<<10)
	for {
		progress(done, header.Size())
		n, err := content.Read(buffer)
		if _, err := f.part.Write(buffer[:n]); err != nil {
			return nil, writeFault(err, f.path)
		}
		done += int64(n)
		if errors.Is(err, io.EOF) {
			return header, nil
		}
		if err != nil {
			return nil, source.or(err)
		}
	}
}

// reading remembers how a stream ended.
type reading struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (r *reading) Read(into []byte) (int, error) {
	n, err := r.from.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// or returns the error of the stream, which matters more than what follows from it.
func (r *reading) or(err error) error {
	if r.err != nil {
		return r.err
	}
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	return fault.Wrap(fault.Failed, err, "the cluster sent a snapshot that cannot be used", "Nothing was kept; try again.")
}

// Close ends the writing of a file that was not finished, of which nothing stays.
func (f *File) Close() error {
	if f.part == nil {
		return nil
	}
	// By name first, while it is locked.
	err := errors.Join(os.Remove(f.part.Name()), f.part.Close())
	f.part = nil
	return err
}

// Finish has what was written be on disk under its name.
func (f *File) Finish() error {
	if err := f.part.Sync(); err != nil {
		return writeFault(err, f.path)
	}
	made, err := setup.RenameOnly(f.part.Name(), f.path)
	if err != nil {
		return writeFault(err, f.path)
	}
	if !made {
		return taken(f.path)
	}
	// Where it was linked, the draft is still there.
	_ = os.Remove(f.part.Name())
	err = f.part.Close()
	f.part = nil
	if err != nil {
		return writeFault(err, f.path)
	}
	return nil
}

func taken(path string) error {
	return fault.New(fault.Refused, path+" is there already, and is never overwritten", "Move it away, or name another file.")
}

func writeFault(err error, path string) error {
	return fault.File(err, fmt.Sprintf("cannot write the snapshot to %s", path), "Name a file in a directory that is there, that you may write, and whose disk has room.")
}
