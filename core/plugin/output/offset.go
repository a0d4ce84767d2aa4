package output

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// logOffset keeps how far a core has come with the spool of an instance, in bytes from its beginning, for the core that comes after this one. It is on the tmpfs of the run
// directory: to write it costs a system call, and it is of no use after the machine has started again.
type logOffset struct {
	file *os.File
	last int64
}

// keepOffset makes the file anew, or takes the one that is there and returns what it says: the beginning if that is nothing of use.
func keepOffset(path string, anew bool) (kept *logOffset, from int64, err error) {
	flags := os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	if anew {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, 0, err
	}
	var content [8]byte
	if n, _ := file.ReadAt(content[:], 0); n == len(content) {
		if at := binary.BigEndian.Uint64(content[:]); at < 1<<62 {
			from = int64(at)
		}
	}
	return &logOffset{file: file, last: -1}, from, nil
}

// set keeps an offset. One that cannot be kept only makes the next core copy some lines twice.
func (o *logOffset) set(to int64) {
	if to == o.last {
		return
	}
	if _, err := o.file.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(to)), 0); err == nil {
		o.last = to
	}
}

func (o *logOffset) close() { _ = o.file.Close() }

// removeFile removes a file, if it exists.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
