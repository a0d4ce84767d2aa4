package snapshotfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// part is how the name of a file ends that is not complete.
const part = ".part"

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
	opened, err := os.OpenFile(path+part, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, writeFault(err, path)
	}
	if err := own(opened, path+part); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return &File{path: path, part: opened}, nil
}

// own has this process be the only one that writes an incomplete file, and empties it.
func own(opened *os.File, path string) error {
	busy := fault.New(fault.Refused, "another reeve writes "+path, "Wait until it is done, or name another file.")
	if err := unix.Flock(int(opened.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return busy
	}
	// The other one may have given the file its name meanwhile.
	there, err := os.Lstat(path)
	if err != nil {
		return busy
	}
	mine, err := opened.Stat()
	if err != nil || !os.SameFile(there, mine) {
		return busy
	}
	if err := errors.Join(opened.Truncate(0), opened.Chmod(0o600)); err != nil {
		return writeFault(err, path)
	}
	return nil
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
	return fault.Wrap(fault.Failed, err, "what the cluster has sent is no snapshot that can be used", "Nothing was kept; try again.")
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
