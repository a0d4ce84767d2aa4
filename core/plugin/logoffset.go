package plugin

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// logOffset keeps how far a core has read the log of an instance, for the core that comes after it. It is on the tmpfs of the run directory: to write
// it costs a system call, and it is of no use after the machine has started again.
type logOffset struct {
	file *os.File
	last int64
}

// keepOffset makes the file anew, or takes the one that is there and returns what it says: -1 if that is nothing of use.
func keepOffset(path string, anew bool) (kept *logOffset, offset int64, err error) {
	flags := os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	if anew {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, -1, err
	}
	kept, offset = &logOffset{file: file, last: -1}, -1
	var content [8]byte
	if n, err := file.ReadAt(content[:], 0); n == len(content) && (err == nil || errors.Is(err, io.EOF)) {
		if said := binary.BigEndian.Uint64(content[:]); said < 1<<62 {
			offset = int64(said)
		}
	}
	return kept, offset, nil
}

// set keeps an offset. One that cannot be kept only makes the next core forward some lines twice.
func (o *logOffset) set(offset int64) {
	if o == nil || offset == o.last {
		return
	}
	var content [8]byte
	binary.BigEndian.PutUint64(content[:], uint64(offset))
	if _, err := o.file.WriteAt(content[:], 0); err == nil {
		o.last = offset
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
