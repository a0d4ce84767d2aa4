package plugin

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// progress is how far a core has come with a spool, in bytes from its beginning.
type progress struct {
	// forwarded is where the first line begins that was not forwarded, and copied how much is in the log of the role: at least as much.
	forwarded, copied int64
}

// logOffset keeps the progress with the spool of an instance, for the core that comes after this one. It is on the tmpfs of the run directory: to write
// it costs a system call, and it is of no use after the machine has started again.
type logOffset struct {
	file *os.File
	last progress
}

// keepOffset makes the file anew, or takes the one that is there and returns what it says: the beginning if that is nothing of use.
func keepOffset(path string, anew bool) (kept *logOffset, from progress, err error) {
	flags := os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	if anew {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, progress{}, err
	}
	kept = &logOffset{file: file, last: progress{-1, -1}}
	var content [16]byte
	if n, err := file.ReadAt(content[:], 0); n == len(content) && (err == nil || errors.Is(err, io.EOF)) {
		forwarded, copied := binary.BigEndian.Uint64(content[:]), binary.BigEndian.Uint64(content[8:])
		if forwarded <= copied && copied < 1<<62 {
			from = progress{int64(forwarded), int64(copied)}
		}
	}
	return kept, from, nil
}

// set keeps a progress. One that cannot be kept only makes the next core forward and copy some lines twice.
func (o *logOffset) set(to progress) {
	if o == nil || to == o.last {
		return
	}
	var content [16]byte
	binary.BigEndian.PutUint64(content[:], uint64(to.forwarded))
	binary.BigEndian.PutUint64(content[8:], uint64(to.copied))
	if _, err := o.file.WriteAt(content[:], 0); err == nil {
		o.last = to
	}
}

func (o *logOffset) close() {
	if o != nil {
		_ = o.file.Close()
	}
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
