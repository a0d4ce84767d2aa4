package nodeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// earlier is added to the name of a log for what was written before.
	earlier = ".1"
	// anchorSize is how much of what was last read is remembered, to find the place again in what is kept of a log that was emptied.
	anchorSize = 4 << 10
	// shrinkTries is how often the last lines of a log are looked for that becomes shorter meanwhile: the core empties one that is too large, which takes
	// a role some megabytes of writing each time.
	shrinkTries = 5
	// noLimit lets a log be read as far as it goes.
	noLimit = math.MaxInt64
)

// The lines that say that something is missing.
const (
	missingEmptied = "part of the log is missing here: it was emptied before it had been read"
	missingPutAway = "part of the log may be missing here: it was put away more than once since it was last read"
	missingChanged = "part of the log may be missing or told twice here: it was put away while it was read"
)

// roleLog reads the log of a role: what is in its file, and before that what is in the one for what was written before. The core puts a log that is too large
// away in two ways. Between two instances it is renamed to the earlier one. While an instance runs, whose file cannot be replaced, the end of it is
// copied over the earlier one and it is emptied; the instance goes on writing at its beginning.
type roleLog struct {
	ctx  context.Context
	path string
	file *logFile
	// offset is how much of the file was read, and anchor the last of that. seen is how large the file was at most since it was last emptied, and limit
	// where reading ends.
	offset, seen, limit int64
	anchor              []byte
	// before is what the earlier file was when it was last looked at; nil: there was none.
	before os.FileInfo
	buffer []byte
}

// openLog opens a log to be read from its beginning, until the context ends. fs.ErrNotExist if there is neither it nor an earlier one.
func openLog(ctx context.Context, path string) (*roleLog, error) {
	l := &roleLog{ctx: ctx, path: path, buffer: make([]byte, anchorSize+logChunk)}
	file, err := openLogFile(ctx, path)
	switch {
	case err == nil:
		l.file = file
		info, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		l.seen, l.limit = info.Size(), info.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if info, err := os.Lstat(path + earlier); err == nil {
		l.before = info
	} else if l.file == nil {
		return nil, err
	}
	return l, nil
}

func (l *roleLog) close() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// logFile is a file that can be read until a context ends. How large it is a role decides, which can make it terabytes of nothing: what goes through
// all of it must not outlive who asked for it.
type logFile struct {
	*os.File
	ctx context.Context
}

// ReadAt implements io.ReaderAt.
func (f *logFile) ReadAt(into []byte, offset int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(into, offset)
}

func openLogFile(ctx context.Context, path string) (*logFile, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s)", path, info.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &logFile{File: file, ctx: ctx}, nil
}

// begin goes to the last lines of both files together, or to the beginning of the earlier one for a tail of 0, and sends what is asked for of that.
func (l *roleLog) begin(tail uint32, to *lineSender) error {
	if l.file == nil || tail == 0 {
		return l.sendEarlier(tail, to)
	}
	found, err := l.seekTail(tail)
	for try := 1; errors.Is(err, errShrunk) && try < shrinkTries; try++ {
		var info os.FileInfo
		if info, err = l.file.Stat(); err == nil {
			l.seen, l.limit = info.Size(), info.Size()
			found, err = l.seekTail(tail)
		}
	}
	if err != nil || found == tail {
		return err
	}
	return l.sendEarlier(tail-found, to)
}

// seekTail goes to where the last lines of the file begin, and returns how many there are.
func (l *roleLog) seekTail(tail uint32) (uint32, error) {
	start, found, err := tailStart(l.file, l.limit, tail)
	if err != nil {
		return 0, err
	}
	return found, l.seek(start)
}

// seek goes to an offset of the file.
func (l *roleLog) seek(offset int64) error {
	l.offset = offset
	l.anchor = make([]byte, min(offset, anchorSize))
	if n, err := l.file.ReadAt(l.anchor, offset-int64(len(l.anchor))); n < len(l.anchor) {
		if err == nil || errors.Is(err, io.EOF) {
			err = errShrunk
		}
		return err
	}
	return nil
}

// sendEarlier sends the last lines of the earlier file, or all of it for a tail of 0.
func (l *roleLog) sendEarlier(tail uint32, to *lineSender) error {
	file, err := openLogFile(l.ctx, l.path+earlier)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if l.file != nil {
		if own, err := l.file.Stat(); err != nil || os.SameFile(own, info) {
			// It has just become the earlier one, and is read anyway.
			return err
		}
	}
	l.before = info
	start := int64(0)
	if tail > 0 {
		if start, _, err = tailStart(file, info.Size(), tail); err != nil {
			return err
		}
	}
	if err := copyLog(file, start, info.Size(), to); err != nil {
		return err
	}
	if now, err := file.Stat(); err != nil || !unchanged(now, info) {
		return errors.Join(err, to.note(missingChanged))
	}
	// The file begins with a line, unless the earlier one was cut from it in the middle of one, which cannot be told.
	return to.end()
}

func unchanged(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// step reads on, and reports whether there may be more.
func (l *roleLog) step(to *lineSender) (bool, error) {
	if l.file == nil {
		return false, nil
	}
	info, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() < l.seen {
		return true, l.emptied(to)
	}
	// What was last read is read again with what comes next: if it is not there any more, the file was emptied and has grown as large since.
	before, end := len(l.anchor), min(info.Size(), l.limit)
	n, err := l.file.ReadAt(l.buffer[:int64(before)+min(logChunk, max(0, end-l.offset))], l.offset-int64(before))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	gone := n < before || !bytes.Equal(l.buffer[:before], l.anchor)
	if !gone {
		// Only after the read: the file may have been emptied, and written again, since its size was taken.
		if gone, err = l.putAway(info); err != nil {
			return false, err
		}
	}
	if gone {
		return true, l.emptied(to)
	}
	l.seen = info.Size()
	if n == before {
		return false, nil
	}
	data := l.buffer[before:n]
	l.offset += int64(len(data))
	l.anchor = append(l.anchor[:0], l.buffer[max(0, n-anchorSize):n]...)
	return true, to.feed(data)
}

// putAway reports whether the end of the file was put away, and the file emptied, since it was last looked at: another end than before is in the earlier file
// then, and not in this one any more. The size alone does not tell if it has grown as large again.
func (l *roleLog) putAway(own os.FileInfo) (bool, error) {
	now, err := os.Lstat(l.path + earlier)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || now.Size() == 0 || unchanged(now, l.before) {
		return false, err
	}
	if named, err := os.Lstat(l.path); err != nil || !os.SameFile(own, named) {
		// It was not emptied: another has its name.
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	kept, err := openLogFile(l.ctx, l.path+earlier)
	if err != nil {
		return false, err
	}
	defer func() { _ = kept.Close() }()
	tail := make([]byte, min(now.Size(), anchorSize))
	if n, err := kept.ReadAt(tail, now.Size()-int64(len(tail))); n < len(tail) {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return false, err
	}
	after, err := findAfter(l.file, own.Size(), tail)
	return after < 0, err
}

// emptied goes on after the file was emptied: with what is kept of the end of what was in it, as far as that was not read, and then at its beginning.
func (l *roleLog) emptied(to *lineSender) error {
	unread := l.seen - l.offset
	anchor := l.anchor
	l.offset, l.seen, l.anchor = 0, 0, nil
	if l.limit != noLimit {
		// What is asked for was there before.
		l.limit = 0
	}
	kept, err := openLogFile(l.ctx, l.path+earlier)
	if errors.Is(err, fs.ErrNotExist) {
		return to.note(missingEmptied)
	}
	if err != nil {
		return err
	}
	defer func() { _ = kept.Close() }()
	info, err := kept.Stat()
	if err != nil {
		return err
	}
	if unchanged(info, l.before) {
		// Nothing was kept of it: its role emptied it.
		return to.note(missingEmptied)
	}
	l.before = info
	from, err := findAfter(kept, info.Size()-unread, anchor)
	if err != nil {
		return err
	}
	if from < 0 {
		if err := to.note(missingEmptied); err != nil {
			return err
		}
		if from, err = nextLine(kept, info.Size()); err != nil {
			return err
		}
	}
	if err := copyLog(kept, from, info.Size(), to); err != nil {
		return err
	}
	if now, err := kept.Stat(); err != nil || !unchanged(now, info) {
		return errors.Join(err, to.note(missingChanged))
	}
	return nil
}

// catchUp reads all that there is, on into the file that took the place of this one if there is one.
func (l *roleLog) catchUp(to *lineSender) error {
	for {
		for more := true; more; {
			var err error
			if more, err = l.step(to); err != nil {
				return err
			}
		}
		moved, err := l.moved()
		if err != nil || !moved {
			return err
		}
		// Its writer had ended before it was put away, but perhaps not when it was last read.
		for more := true; more; {
			if more, err = l.step(to); err != nil {
				return err
			}
		}
		if err := l.replace(to); err != nil {
			return err
		}
	}
}

// moved reports whether another file has the log's name.
func (l *roleLog) moved() (bool, error) {
	now, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || l.file == nil {
		return err == nil, err
	}
	own, err := l.file.Stat()
	return err == nil && !os.SameFile(own, now), err
}

// replace goes to the beginning of the file that has the log's name.
func (l *roleLog) replace(to *lineSender) error {
	next, err := openLogFile(l.ctx, l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := to.end(); err != nil {
		return errors.Join(err, next.Close())
	}
	before, err := os.Lstat(l.path + earlier)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, next.Close())
	}
	if l.file != nil {
		own, err := l.file.Stat()
		if err == nil && (before == nil || !os.SameFile(own, before)) {
			err = to.note(missingPutAway)
		}
		if err != nil {
			return errors.Join(err, next.Close())
		}
		_ = l.file.Close()
	}
	l.file, l.offset, l.seen, l.anchor, l.before = next, 0, 0, nil, before
	return nil
}
