package nodeapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/reeveproject/reeve/core/storage"
)

// earlier is added to the name of a log for what was written before.
const earlier = ".1"

// The lines that say that something is missing.
const (
	missingEmptied = "part of the log is missing here: it was emptied before it had been read"
	missingPutAway = "part of the log may be missing here: it was put away more than once since it was last read"
)

// roleLog reads the log of a role, which the core alone writes. When a file is full, the core renames it to the earlier one and begins another. Together they are one text: a line may
// begin in the one and end in the other. A reader keeps its file open and reads it to its end, whatever it is called by then.
type roleLog struct {
	path string
	// before is the earlier file, and file the one that is written to. Either may be nil.
	before, file *logFile
}

// logFile is a file of a log, which had size bytes when it was opened.
type logFile struct {
	*os.File
	info os.FileInfo
}

// openLog opens a log. The error is fs.ErrNotExist if there is neither file.
func openLog(path string) (*roleLog, error) {
	l := &roleLog{path: path}
	var err, errBefore error
	// In this order, a file that is put away meanwhile is found twice, and not missed.
	if l.file, err = openLogFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if l.before, errBefore = openLogFile(path + earlier); errBefore != nil && (l.file == nil || !errors.Is(errBefore, fs.ErrNotExist)) {
		l.close()
		return nil, errBefore
	}
	if l.before != nil && l.file != nil && os.SameFile(l.before.info, l.file.info) {
		_ = l.before.Close()
		l.before = nil
	}
	return l, nil
}

func openLogFile(path string) (*logFile, error) {
	file, err := storage.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &logFile{file, info}, nil
}

func (l *roleLog) close() {
	for _, file := range []*logFile{l.before, l.file} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// there returns what was in both files when they were opened.
func (l *roleLog) there() io.Reader {
	var parts []io.Reader
	for _, file := range []*logFile{l.before, l.file} {
		if file != nil {
			parts = append(parts, io.NewSectionReader(file, 0, file.info.Size()))
		}
	}
	return io.MultiReader(parts...)
}

// sendThere sends the last lines of what was there when the log was opened; all of it for a tail of 0. What is read next comes after that.
func (l *roleLog) sendThere(tail uint32, to *lineSender) error {
	if tail > 0 {
		lines, err := countLines(to.ctx, l.there())
		if err != nil {
			return err
		}
		to.skip = max(0, lines-int(tail))
	}
	_, err := io.Copy(to, l.there())
	to.skip = 0 // there may be fewer lines by now
	if err != nil || l.file == nil {
		return err
	}
	_, err = l.file.Seek(l.file.info.Size(), io.SeekStart)
	return err
}

// countLines counts a last line that has no end yet, too.
func countLines(ctx context.Context, text io.Reader) (lines int, err error) {
	block, last := make([]byte, logChunk), byte('\n')
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := text.Read(block)
		lines += bytes.Count(block[:n], []byte{'\n'})
		if n > 0 {
			last = block[n-1]
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return 0, err
		case last != '\n':
			return lines + 1, nil
		default:
			return lines, nil
		}
	}
}

// catchUp sends what was written since, on into the file that took the place of this one if there is one.
func (l *roleLog) catchUp(to *lineSender) error {
	for {
		if err := l.sendRest(to); err != nil {
			return err
		}
		now, err := os.Lstat(l.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // what the core writes still comes into the file that had the name
		case err != nil || l.file != nil && os.SameFile(now, l.file.info):
			return err
		}
		// With what was written before it was put away.
		if err := l.sendRest(to); err != nil {
			return err
		}
		next, err := openLogFile(l.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if l.file != nil {
			before, err := os.Lstat(l.path + earlier)
			if err != nil || !os.SameFile(before, l.file.info) {
				err = to.note(missingPutAway)
			}
			_ = l.file.Close()
			if err != nil {
				return errors.Join(err, next.Close())
			}
		}
		l.file = next
	}
}

// sendRest sends what is in the file and was not read.
func (l *roleLog) sendRest(to *lineSender) error {
	if l.file == nil {
		return nil
	}
	if _, err := io.Copy(to, l.file); err != nil {
		return err
	}
	at, err := l.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil || info.Size() >= at {
		return err
	}
	// An operator has emptied it.
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := to.note(missingEmptied); err != nil {
		return err
	}
	_, err = io.Copy(to, l.file)
	return err
}
