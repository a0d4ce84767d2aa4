package nodeapi

import (
	"bytes"
	"errors"
	"io"
)

// errShrunk says that a log was emptied while it was read.
var errShrunk = errors.New("it became shorter while it was read: try again")

// tailStart returns where the last lines of the first size bytes of a file begin, reading from the end only as much as they need, and how many lines there
// are from there. A last line that has no end yet is one.
func tailStart(file io.ReaderAt, size int64, lines uint32) (start int64, found uint32, err error) {
	if size == 0 || lines == 0 {
		return size, 0, nil
	}
	block := make([]byte, logChunk)
	for end := size; end > 0; {
		from := max(0, end-logChunk)
		part := block[:end-from]
		if n, err := file.ReadAt(part, from); n < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = errShrunk
			}
			return 0, 0, err
		}
		for at := len(part); ; {
			if at = bytes.LastIndexByte(part[:at], '\n'); at < 0 {
				break
			}
			// The end of the very last line begins none.
			if from+int64(at) == size-1 {
				continue
			}
			if found++; found == lines {
				return from + int64(at) + 1, found, nil
			}
		}
		end = from
	}
	return 0, found + 1, nil
}

// copyLog sends part of a file. One that became shorter meanwhile is sent as far as it goes.
func copyLog(file io.ReaderAt, from, to int64, sender *lineSender) error {
	block := make([]byte, logChunk)
	for from < to {
		n, err := file.ReadAt(block[:min(logChunk, to-from)], from)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := sender.feed(block[:n]); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// nextLine returns where the first line begins of which it is certain that it is whole.
func nextLine(file io.ReaderAt, size int64) (int64, error) {
	block := make([]byte, logChunk)
	for from := int64(0); from < size; from += logChunk {
		n, err := file.ReadAt(block, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if at := bytes.IndexByte(block[:n], '\n'); at >= 0 {
			return from + int64(at) + 1, nil
		}
	}
	return size, nil
}

// findAfter returns where what follows the last occurrence of something in the first size bytes of a file begins; -1: there is none.
func findAfter(file io.ReaderAt, size int64, what []byte) (int64, error) {
	if len(what) == 0 {
		return -1, nil
	}
	block := make([]byte, logChunk+len(what))
	for end := size; end >= int64(len(what)); {
		from := max(0, end-int64(len(block)))
		n, err := file.ReadAt(block[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return -1, err
		}
		if at := bytes.LastIndex(block[:n], what); at >= 0 {
			return from + int64(at) + int64(len(what)), nil
		}
		if from == 0 {
			break
		}
		// Overlapping, for what lies across.
		end = from + int64(len(what)) - 1
	}
	return -1, nil
}
