package plugin

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	// keptLines is how many lines are kept to explain an end: the first lines of a Go panic and its trace fit.
	keptLines = 20
	// keptLine bounds a kept line, in bytes: it goes into errors and reasons.
	keptLine = 512
	// maxLog is the size of a log from which it begins anew, in bytes, and keptLog how much of its end is then kept beside it: days of an ordinary
	// role, and little enough for 64 roles on a small disk. Between two instances, all of it is kept.
	maxLog  = 16 << 20
	keptLog = 4 << 20
	// maxBacklog is how much of what was written is read at a time, in bytes. What a role writes faster than that is left out of the core's log
	// unread.
	maxBacklog = 1 << 20
	// floodPause is how long the core leaves a log alone at most whose role has used up its share, and floodBacklog how much of it is then read: nothing is
	// forwarded, so that it is looked at only to keep the file small, to know the last lines and to count the others.
	floodPause   = 20 * time.Millisecond
	floodBacklog = 16 << 10
	// rush is how much a role has to have written since the core last looked, in bytes, for the core to look again after rushPause already: the file is to
	// stay small, however fast the role is. From then on the pauses double, as long as the role writes less.
	rush      = 4 << 20
	rushPause = 2 * time.Millisecond
	// rushLog is how much of the end of a log is kept that begins anew for the second time within a share's period, in bytes.
	rushLog = 64 << 10
	// rushOver is how long after a log began anew its end is written beside it. Until then it may begin anew again, and whoever writes to a disk that a role floods is
	// held up by the kernel for as long as the disk needs for what the role writes, while nobody keeps the log small.
	rushOver = time.Second
	// pollLog is how often a log is looked at where the kernel has no more inotify instances to give.
	pollLog = time.Second
)

// earlier is added to the name of a log for what was written before.
const earlier = ".1"

// openLog opens the log of a role for the standard error of an instance. What an instance writes is appended, so that a core that was
// replaced in the meantime and its successor's instances never overwrite each other.
func openLog(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+earlier); err != nil {
			return nil, err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
}

// follower forwards what an instance appends to its log into the core's log, as far as its share goes, and has the file begin anew when it is too
// large. It owns one goroutine, which ends after finish.
type follower struct {
	log    hclog.Logger
	path   string
	file   *os.File
	events *watch // nil if there is none
	idle   *watches
	stop   chan struct{}
	done   chan struct{}
	offset *logOffset // of run's goroutine; nil: nobody needs it
	// leaving says that another core goes on where this one stops. It is set before stop is closed.
	leaving bool
	share   share // of run's goroutine
	// The next are of run's goroutine: pause is how long a log is left alone whose role has used up its share; ended is the end of the log that began anew
	// and is not written beside it yet, nil if there is none, and anew when it began anew.
	pause time.Duration
	ended []byte
	anew  time.Time

	mu   sync.Mutex
	kept []logLine
}

// follow begins at the present end of the file, or at an offset if from is not negative. How far it has come it keeps in offset, which may be nil, and
// which it closes in the end.
func follow(log hclog.Logger, path string, from int64, offset *logOffset, idle *watches) (*follower, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		offset.close()
		return nil, err
	}
	whence := io.SeekStart
	if from < 0 {
		from, whence = 0, io.SeekEnd
	}
	at, err := file.Seek(from, whence)
	if err != nil {
		offset.close()
		return nil, errors.Join(err, file.Close())
	}
	offset.set(at)
	f := &follower{
		log: log, path: path, file: file, stop: make(chan struct{}), done: make(chan struct{}), offset: offset, idle: idle, share: share{began: time.Now()},
	}
	f.events, err = idle.watch(path)
	if err != nil {
		log.Warn("the log is read once a second, since the kernel does not tell of its changes", "file", path, "error", err)
	}
	go f.run()
	return f, nil
}

// finish forwards what is in the file now, and returns when that is done. Nobody may write any more.
func (f *follower) finish() {
	close(f.stop)
	if f.events != nil {
		_ = f.events.SetReadDeadline(time.Unix(1, 0))
	}
	<-f.done
	f.offset.close()
	_ = f.file.Close()
	if f.events != nil {
		f.idle.end(f.events)
	}
}

// leave does so too, but for a line that is not whole yet: it is for the next core.
func (f *follower) leave() {
	f.leaving = true
	f.finish()
}

// lines are the last ones, oldest first.
func (f *follower) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts []string
	for _, line := range f.kept {
		texts = append(texts, cut(line.text(), keptLine))
	}
	return texts
}

func (f *follower) run() {
	defer close(f.done)
	var partial []byte
	reader := bufio.NewReaderSize(nil, maxLine)
	for running := true; running; {
		// Asked before the file is read: what was written before finish is then read in this turn.
		select {
		case <-f.stop:
			running = false
		default:
		}
		// No more than is there now: somebody may write for ever, also one who ought to be gone.
		backlog, most := f.remaining(), int64(maxBacklog)
		switch {
		case backlog > rush:
			f.pause, most = rushPause, floodBacklog
		case f.share.spent():
			f.pause, most = min(2*f.pause, floodPause), floodBacklog
		default:
			f.pause = rushPause
		}
		if backlog > most {
			f.skip(backlog - most)
			backlog, partial = most, nil
		}
		reader.Reset(io.LimitReader(f.file, backlog))
		partial = f.forward(reader, partial)
		if f.beginAnew() {
			partial = f.end(partial)
		}
		if time.Since(f.anew) >= rushOver {
			f.keepEnd()
		}
		f.keepOffset(partial)
		if running {
			f.waitForMore()
		}
		f.account(false)
	}
	f.keepEnd()
	if !f.leaving {
		f.end(partial)
	}
	f.account(true)
}

// keepOffset keeps where the first line begins that was not forwarded.
func (f *follower) keepOffset(partial []byte) {
	if f.offset == nil {
		return
	}
	if at, err := f.file.Seek(0, io.SeekCurrent); err == nil {
		f.offset.set(max(0, at-int64(len(partial))))
	}
}

// remaining is how much of the file has not been read. A file that became shorter is read from its beginning.
func (f *follower) remaining() int64 {
	offset, err := f.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	info, err := f.file.Stat()
	if err != nil {
		return 0
	}
	if info.Size() < offset {
		if offset, err = f.file.Seek(0, io.SeekStart); err != nil {
			return 0
		}
	}
	return info.Size() - offset
}

func (f *follower) skip(bytes int64) {
	if _, err := f.file.Seek(bytes, io.SeekCurrent); err == nil {
		f.share.skipped += bytes
	}
}

// beginAnew empties a file that is too large, and reports whether it did. The process goes on writing into it, at its new end: it has the file open
// for appending, so the file cannot be replaced. What is written between the copying and the emptying is lost.
func (f *follower) beginAnew() bool {
	info, err := f.file.Stat()
	if err != nil || info.Size() <= maxLog {
		return false
	}
	f.takeEnd(info.Size())
	if err = f.file.Truncate(0); err == nil {
		_, err = f.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.log.Warn("a log that is too large could not be emptied", "file", f.path, "error", err)
		return false
	}
	f.share.emptied++
	f.anew = time.Now()
	return true
}

// takeEnd takes what is to be kept of a log that begins anew into memory.
func (f *follower) takeEnd(size int64) {
	keep := int64(keptLog)
	if f.share.emptied > 0 {
		keep = rushLog
	}
	end := make([]byte, min(size, keep))
	n, err := f.file.ReadAt(end, size-int64(len(end)))
	if err != nil && !errors.Is(err, io.EOF) {
		f.log.Warn("the end of a log that is too large could not be read", "file", f.path, "error", err)
	}
	f.ended = end[:n]
}

// keepEnd writes beside the log what was taken of the one before.
func (f *follower) keepEnd() {
	if f.ended == nil {
		return
	}
	kept, err := os.OpenFile(f.path+earlier, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = kept.Write(f.ended)
		err = errors.Join(err, kept.Close())
	}
	if err != nil {
		f.log.Warn("the end of a log that is too large could not be kept", "file", f.path, "error", err)
	}
	f.ended = nil
}

// forward emits the whole lines that the file has, and returns what is there of an unfinished one, at most a little more than maxLine: the
// rest of a longer line is skipped.
func (f *follower) forward(reader *bufio.Reader, partial []byte) []byte {
	for {
		chunk, err := reader.ReadSlice('\n')
		if room := maxLine + 1 - len(partial); room > 0 {
			partial = append(partial, chunk[:min(len(chunk), room)]...)
		}
		switch {
		case err == nil:
			f.emit(partial)
			partial = partial[:0]
		case !errors.Is(err, bufio.ErrBufferFull):
			return partial
		}
	}
}

// end emits a line that will not be finished.
func (f *follower) end(partial []byte) []byte {
	if len(partial) > 0 {
		f.emit(partial)
	}
	return nil
}

func (f *follower) emit(raw []byte) {
	line := parseLine(raw)
	f.keep(line)
	if f.share.take(time.Now(), len(raw)) {
		f.log.Log(line.level, line.message, line.fields...)
	}
}

func (f *follower) keep(line logLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, line)
	if len(f.kept) > keptLines {
		// A panic's first line says more than the last one of its trace.
		drop := 0
		if tellsPanic(f.kept[0].text()) {
			drop = 1
		}
		f.kept = append(f.kept[:drop], f.kept[drop+1:]...)
	}
}

// account says what was left out, when the role has its next share or there is nothing more to come.
func (f *follower) account(last bool) {
	left, ok := f.share.settle(time.Now(), last)
	if !ok {
		return
	}
	message := strconv.Itoa(left.lines) + " lines left out"
	if left.emptied > 0 {
		message += "; the log became too large and began anew"
	}
	f.log.Warn(message, "bytes_unread", left.skipped, "times_emptied", left.emptied, "file", f.path)
}

// waitForMore returns when there may be more to read, or something to account for.
func (f *follower) waitForMore() {
	pause := time.Duration(0)
	switch {
	case f.share.spent():
		pause = f.pause
	case f.events == nil:
		pause = pollLog
	}
	if pause > 0 {
		select {
		case <-f.stop:
			return
		case <-time.After(pause):
		}
	}
	if f.events == nil {
		return
	}
	until := f.share.until()
	if f.ended != nil {
		until = f.anew.Add(rushOver)
	}
	_ = f.events.SetReadDeadline(until)
	// finish sets a deadline of its own after it has closed stop, which is not to be overwritten.
	select {
	case <-f.stop:
		return
	default:
	}
	var events [4096]byte
	_, _ = f.events.Read(events[:]) // which ends with an error when finish is called
}
