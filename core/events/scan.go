package events

import (
	"bytes"
	"errors"
	"io"
	"sort"
)

// block is how much of a file is read at a time, in bytes.
const block = 64 << 10

// last is what the end of a file says.
type last struct {
	sequence uint64
	// ended says that the very last line is the word of a core that has ended; offset is where it begins.
	ended  bool
	offset int64
}

// lastLine returns the highest number that a file of that size tells of, from its last line that can be read.
func lastLine(file io.ReaderAt, size int64) (last, error) {
	var l last
	final := true
	err := backwards(file, size, func(line []byte, offset int64) bool {
		event, mark, err := parseLine(line)
		switch {
		case err != nil:
		case event != nil:
			l.sequence = event.GetSequence()
		default:
			l.sequence, l.ended, l.offset = mark.After, mark.Ended && final, offset
		}
		final = false
		return err != nil
	})
	return l, err
}

// ours reports whether the first line of a file does not say that another version wrote it.
func ours(file io.ReaderAt) bool {
	start := make([]byte, 256)
	n, _ := file.ReadAt(start, 0)
	first, _, _ := bytes.Cut(start[:n], []byte{'\n'})
	_, mark, err := parseLine(first)
	return err != nil || mark == nil || mark.Version == version
}

// backwards calls each with the lines of the first size bytes of a file, the last one first, as long as it returns true. A line is valid until each
// returns. Lines that are longer than maxLine come as nil.
func backwards(file io.ReaderAt, size int64, each func(line []byte, offset int64) bool) error {
	// rest is the beginning of what was read, up to where the first line ends that begins before it; cut says that it was too long to be kept.
	var rest []byte
	cut := false
	emit := func(head []byte, offset int64) bool {
		line := head
		if len(rest) > 0 {
			line = append(bytes.Clone(head), rest...)
		}
		if cut || len(line) > maxLine {
			line = nil
		}
		rest, cut = nil, false
		return each(line, offset)
	}
	buffer := make([]byte, block)
	for end := size; end > 0; {
		from := max(0, end-block)
		read := buffer[:end-from]
		if n, err := file.ReadAt(read, from); n < len(read) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if end == size && read[len(read)-1] == '\n' {
			// The end of the last line begins no other.
			read = read[:len(read)-1]
		}
		for {
			at := bytes.LastIndexByte(read, '\n')
			if at < 0 {
				break
			}
			if !emit(read[at+1:], from+int64(at)+1) {
				return nil
			}
			read = read[:at]
		}
		if len(read)+len(rest) > maxLine {
			rest, cut = nil, true
		} else {
			rest = append(bytes.Clone(read), rest...)
		}
		end = from
	}
	if size > 0 {
		emit(nil, 0)
	}
	return nil
}

// firstEvent returns the number of the first event that begins in a file at or after an offset, as far as size; 0: there is none.
func firstEvent(file io.ReaderAt, offset, size int64) (uint64, error) {
	lines := newLines(file, max(offset-1, 0))
	if offset > 0 {
		// To the beginning of a line: this one, if the byte before is the end of another.
		if _, ok, err := lines.next(size); err != nil || !ok {
			return 0, err
		}
	}
	for {
		line, ok, err := lines.next(size)
		if err != nil || !ok {
			return 0, err
		}
		if event, _, err := parseLine(line); err == nil && event != nil {
			return event.GetSequence(), nil
		}
	}
}

// offsetAfter returns an offset in a file of that size before which there are only events up to a number, and which is not far before the first one after it.
func offsetAfter(file io.ReaderAt, size int64, after uint64) (int64, error) {
	if after == 0 {
		return 0, nil
	}
	var failure error
	later := sort.Search(int(size/block)+1, func(n int) bool {
		sequence, err := firstEvent(file, int64(n)*block, size)
		if err != nil {
			failure = err
		}
		return sequence == 0 || sequence > after
	})
	if failure != nil || later == 0 {
		return 0, failure
	}
	return int64(later-1) * block, nil
}

// lines reads the lines of a file. It may go on when the file has become larger.
type lines struct {
	file   io.ReaderAt
	offset int64 // of what comes next
	buffer []byte
	unread []byte
	long   bool // what comes next is the rest of a line that is too long
}

func newLines(file io.ReaderAt, offset int64) *lines {
	return &lines{file: file, offset: offset, buffer: make([]byte, maxLine+1)}
}

// next returns the next line, without its end, as far as the file has size bytes; false: there is none yet. A line is valid until the next call. One that is
// too long comes as nil, and so do the bytes at the end of the file that are no whole line, which are not read again.
func (l *lines) next(size int64) ([]byte, bool, error) {
	for {
		if at := bytes.IndexByte(l.unread, '\n'); at >= 0 {
			line := l.unread[:at]
			l.unread = l.unread[at+1:]
			if l.long {
				line, l.long = nil, false
			}
			return line, true, nil
		}
		if len(l.unread) > maxLine {
			l.unread, l.long = nil, true
		}
		if l.offset >= size {
			if len(l.unread) == 0 && !l.long {
				return nil, false, nil
			}
			line := l.unread
			if l.long {
				line = nil
			}
			l.unread, l.long = nil, false
			return line, true, nil
		}
		kept := copy(l.buffer, l.unread)
		n, err := l.file.ReadAt(l.buffer[kept:min(int64(len(l.buffer)), int64(kept)+size-l.offset)], l.offset)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, false, err
		}
		l.offset += int64(n)
		l.unread = l.buffer[:kept+n]
	}
}
