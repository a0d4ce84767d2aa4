package events

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/storage"
)

// earlier is added to the name of the file for the one before.
const earlier = ".1"

// minAside is the size in bytes that a file has at least when it is put aside: more than its first line.
const minAside = 256

// files are the file of a journal and the one before. One goroutine writes, and any number read beside it.
type files struct {
	log  hclog.Logger
	path string
	// max is the size in bytes from which the file is put aside.
	max int64
}

// newest returns the number of the last line that can be read, 0 if there is none, and whether there is any file.
func (f files) newest() (number uint64, exists bool, err error) {
	for _, path := range []string{f.path, f.path + earlier} {
		file, err := storage.OpenRegular(path, os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, false, err
		}
		exists = true
		if number == 0 {
			var content []byte
			content, err = io.ReadAll(file)
			number = lastNumber(content)
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return 0, false, err
		}
	}
	return number, exists, nil
}

// lastNumber returns the number of the last line that can be read; 0: there is none.
func lastNumber(content []byte) uint64 {
	for len(content) > 0 {
		line := content[bytes.LastIndexByte(content, '\n')+1:]
		content = content[:max(0, len(content)-len(line)-1)]
		if event, mark, err := parseLine(line); err == nil && event != nil {
			return event.GetSequence()
		} else if err == nil {
			return mark.After
		}
	}
	return 0
}

// write appends whole lines to the file, or to a new one if that would become too large, and returns when they are durable. On failure it removes what it
// wrote; if that fails too, the lines are there twice later, which readers see by the numbers. after is the number before those of the lines.
func (f files) write(lines []byte, after uint64) error {
	file, size, err := f.open(int64(len(lines)))
	if err != nil {
		return err
	}
	before, err := separator(file, size, after)
	if err == nil {
		_, err = file.Write(append(before, lines...))
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil && size == 0 {
		err = storage.SyncDirectory(filepath.Dir(f.path))
	}
	if err != nil {
		// The next try opens the file anew: the kernel does not write again through this descriptor what it failed to write.
		err = errors.Join(err, file.Truncate(size))
	}
	return errors.Join(err, file.Close())
}

// separator returns what must come before the next line: the first line in an empty file, and the end of a line that an earlier core left torn.
func separator(file io.ReaderAt, size int64, after uint64) ([]byte, error) {
	if size == 0 {
		return mark{Version: version, After: after}.line()
	}
	var end [1]byte
	if _, err := file.ReadAt(end[:], size-1); err != nil || end[0] == '\n' {
		return nil, err
	}
	return []byte{'\n'}, nil
}

// open opens the file for appending, and returns its size. If it does not take so many bytes more, or another version of the program wrote it, it becomes the
// file before, and a new one begins.
func (f files) open(more int64) (*os.File, int64, error) {
	file, err := storage.OpenRegular(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, 0, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	foreign := false
	err = eachLine(io.NewSectionReader(file, 0, size), func(line []byte, _ int) bool {
		foreign = !ours(line)
		return false
	})
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	if !foreign && (size <= minAside || size+more <= f.max) {
		return file, size, nil
	}
	if foreign {
		f.log.Warn("the journal of events is of another version of this program and is put aside", "file", f.path)
	}
	if err := errors.Join(file.Close(), os.Rename(f.path, f.path+earlier)); err != nil {
		return nil, 0, err
	}
	return f.open(more)
}

// ours reports whether the first line of a file does not say that another version wrote it.
func ours(first []byte) bool {
	_, mark, err := parseLine(first)
	return err != nil || mark == nil || mark.Version == version
}

// each calls visit with every file that there is, the one before first. Files that are put aside meanwhile are visited all the same, perhaps twice.
func (f files) each(visit func(file *os.File) error) error {
	var open []*os.File
	defer func() {
		for _, file := range open {
			_ = file.Close()
		}
	}()
	// The newer one is opened first: what is put aside between the two is in both.
	for _, path := range []string{f.path, f.path + earlier} {
		file, err := storage.OpenRegular(path, os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		open = append([]*os.File{file}, open...)
	}
	for _, file := range open {
		if err := visit(file); err != nil {
			return err
		}
	}
	return nil
}

// eachLine calls visit with every whole line of a file, without its end, and with its length, while visit returns true.
func eachLine(file io.Reader, visit func(line []byte, length int) bool) error {
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest is being written, or was left torn
		}
		if err != nil || !visit(line[:len(line)-1], len(line)) {
			return err
		}
	}
}

// sequenceOf returns the number of an event without parsing the rest of its line; 0: the line must be parsed.
func sequenceOf(line []byte) uint64 {
	rest, ok := bytes.CutPrefix(line, []byte(`{"sequence":"`))
	digits, _, whole := bytes.Cut(rest, []byte{'"'})
	if !ok || !whole || !bytes.HasSuffix(line, []byte{'}'}) {
		return 0
	}
	n, _ := strconv.ParseUint(string(digits), 10, 62)
	return n
}
