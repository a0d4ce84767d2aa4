package nodeapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/logline"
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

// sendThere sends what is wanted of what was there when the log was opened. What is read next comes after that.
func (l *roleLog) sendThere(wanted selection, to *lineSender) error {
	if wanted != (selection{}) {
		from, until, err := wanted.lines(to.ctx, l.there())
		if err != nil {
			return err
		}
		if to.skip, to.limit = from, until-from; to.limit == 0 {
			to.skip = math.MaxInt
		}
	}
	_, err := io.Copy(to, l.there())
	if err != nil || l.file == nil {
		return err
	}
	_, err = l.file.Seek(l.file.info.Size(), io.SeekStart)
	return err
}

// selection is which of the lines of a log are wanted; the zero value: all of them.
type selection struct {
	// tail is how many of the last ones; 0: all.
	tail uint32
	// since leaves out those before the first one that is not older; zero: none.
	since time.Time
	// previous leaves out all but what the last instance wrote that is not the running one.
	previous bool
	// running is the ID of the instance that runs; empty: none does.
	running string
}

// errNoPrevious says that nothing is kept of an instance before the one that runs.
var errNoPrevious = errors.New("no earlier instance is in the log")

// lines returns which lines of a text are wanted: those from an index up to another one. A last line that has no end yet counts.
func (s selection) lines(ctx context.Context, text io.Reader) (from, until int, err error) {
	count, recent := 0, -1
	// begins is where the last instance begins that does not run, and runs where the one begins that does. What stands before the first beginning is of an instance, too.
	begins, runs := 0, -1
	look := &lineSender{ctx: ctx, send: func(data []byte) error {
		for line := range bytes.Lines(data) {
			if s.previous {
				switch id := logline.Begins(line); id {
				case "":
				case s.running:
					runs = count
				default:
					begins = count
				}
			}
			if recent < 0 && !s.since.IsZero() {
				if record, ok := logline.Parse(line); ok && !record.Time.IsZero() && !record.Time.Before(s.since) {
					recent = count
				}
			}
			count++
		}
		return nil
	}}
	if _, err := io.Copy(look, text); err != nil {
		return 0, 0, err
	}
	if err := errors.Join(look.end(), look.flush()); err != nil {
		return 0, 0, err
	}
	until = count
	if s.previous {
		if from = begins; runs > begins {
			until = runs
		}
		if s.running != "" && runs < 0 || from == until || runs == 0 && begins == 0 {
			return 0, 0, errNoPrevious
		}
	}
	if !s.since.IsZero() {
		if recent < 0 {
			recent = count
		}
		from = min(max(from, recent), until)
	}
	if s.tail > 0 {
		from = max(from, until-int(s.tail))
	}
	return from, until, nil
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
