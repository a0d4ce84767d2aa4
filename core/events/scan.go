package events

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

// last is what the end of a file says.
type last struct {
	sequence uint64
	// ended says that the very last line is the word of a core that has ended; offset is where it begins.
	ended  bool
	offset int64
}

// lastLine returns the highest number that a file of that size tells of, from its last line that can be read.
func lastLine(file io.ReaderAt, size int64) (last, error) {
	begins := []int64{0}
	err := eachLine(file, 0, size, func(_ []byte, next int64) bool {
		begins = append(begins, next)
		return true
	})
	if err != nil {
		return last{}, err
	}
	for n := len(begins) - 2; n >= 0; n-- {
		line := make([]byte, min(begins[n+1]-begins[n], maxLine+1))
		if _, err := file.ReadAt(line, begins[n]); err != nil && !errors.Is(err, io.EOF) {
			return last{}, err
		}
		event, mark, err := parseLine(bytes.TrimSuffix(line, []byte{'\n'}))
		switch {
		case err != nil:
		case event != nil:
			return last{sequence: event.GetSequence()}, nil
		default:
			return last{sequence: mark.After, ended: mark.Ended && n == len(begins)-2, offset: begins[n]}, nil
		}
	}
	return last{}, nil
}

// ours reports whether the first line of a file does not say that another version wrote it.
func ours(file io.ReaderAt) bool {
	start := make([]byte, 256)
	n, _ := file.ReadAt(start, 0)
	first, _, _ := bytes.Cut(start[:n], []byte{'\n'})
	_, mark, err := parseLine(first)
	return err != nil || mark == nil || mark.Version == version
}

// eachLine calls each with the lines that begin at an offset of a file and later, as far as the file has size bytes, and with where the next one begins, as long as it returns
// true. A line is valid until each returns. One that is too long comes as nil, and what is no whole line at the end like one.
func eachLine(file io.ReaderAt, offset, size int64, each func(line []byte, next int64) bool) error {
	reader := bufio.NewReaderSize(io.NewSectionReader(file, offset, size-offset), maxLine+1)
	for long := false; ; {
		line, err := reader.ReadSlice('\n')
		offset += int64(len(line))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = true
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case len(line) == 0 && !long:
			return nil
		case long:
			line = nil
		default:
			line = bytes.TrimSuffix(line, []byte{'\n'})
		}
		if long = false; !each(line, offset) || err != nil {
			return nil
		}
	}
}

// sequenceOf returns the number of an event without reading the rest of its line; 0: it is not seen at a glance.
func sequenceOf(line []byte) uint64 {
	rest, ok := bytes.CutPrefix(line, []byte(`{"sequence":"`))
	digits, _, whole := bytes.Cut(rest, []byte{'"'})
	if !ok || !whole || !bytes.HasSuffix(line, []byte{'}'}) {
		return 0
	}
	n, _ := strconv.ParseUint(string(digits), 10, 62)
	return n
}
