package plugin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/filewatch"
)

const (
	// keptLines is how many lines are kept to explain an end: the first lines of a Go panic and its trace fit.
	keptLines = 20
	// keptLine bounds a kept line, in bytes: it goes into errors and reasons.
	keptLine = 512
	// sharePause is how long what a role writes is left alone at most whose share is used up: nothing is forwarded, so that nobody waits for it.
	sharePause = 20 * time.Millisecond
	// rush is how much a role has to have written since the core last looked, in bytes, for the core to look again after rushPause already where the kernel
	// does not bound the spool. From then on the pauses double, as long as the role writes less.
	rush      = 4 << 20
	rushPause = 2 * time.Millisecond
	// copyPiece is how much is copied before the room of it is given back, in bytes, and linePiece how much of it where each line is looked at: a role may
	// write nothing but the ends of lines.
	copyPiece = 1 << 20
	linePiece = 64 << 10
)

// follower takes what an instance writes out of its spool: into the log of the role, and line by line into the core's log, as far as its share goes. It owns
// one goroutine, which ends after finish.
type follower struct {
	log    hclog.Logger
	spool  *spool
	role   *roleLog
	events *filewatch.Watch
	stop   chan struct{}
	done   chan struct{}
	offset *logOffset // of run's goroutine; nil: nobody needs it
	// leaving says that another core goes on where this one stops. It is set before stop is closed.
	leaving bool
	share   share // of run's goroutine
	// The next are of run's goroutine: pause is how long what a role writes is left alone whose share is used up, partial what is there of a line that is not
	// whole yet.
	pause   time.Duration
	partial []byte
	reader  *bufio.Reader

	mu   sync.Mutex
	kept []logLine
}

// follow reads a spool from where the core before came to. How far it has come it keeps in offset, which may be nil, and which it closes in the end, like
// the spool.
func follow(log hclog.Logger, spool *spool, path string, from progress, offset *logOffset, files *filewatch.Watcher) (*follower, error) {
	role, err := openRoleLog(log, path)
	if err != nil {
		offset.close()
		return nil, errors.Join(err, spool.close())
	}
	if info, err := spool.file.Stat(); err == nil && info.Size() < from.copied {
		from = progress{} // the instance has emptied it
	}
	spool.seek(from.forwarded)
	// What an unfinished line had is in the role's log already.
	role.spare = max(0, from.copied-from.forwarded)
	offset.set(from)
	f := &follower{
		log: log, spool: spool, role: role, stop: make(chan struct{}), done: make(chan struct{}), offset: offset, share: share{began: time.Now()},
		reader: bufio.NewReaderSize(nil, maxLine),
	}
	if f.events, err = files.File(spool.path); err != nil {
		offset.close()
		return nil, errors.Join(err, role.close(), spool.close())
	}
	if f.events.Polled != nil {
		log.Warn("what the role writes is looked for again and again, since the kernel does not tell of it", "file", spool.path, "error", f.events.Polled)
	}
	go f.run()
	return f, nil
}

// finish forwards what is in the file now, and returns when that is done. Nobody may write any more.
func (f *follower) finish() {
	close(f.stop)
	<-f.done
	f.offset.close()
	_ = f.role.close()
	_ = f.spool.close()
	f.events.Stop()
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
	for running := true; running; {
		// Asked before the spool is read: what was written before finish is then read in this turn.
		select {
		case <-f.stop:
			running = false
		default:
		}
		// No more than is there now: somebody may write for ever, also one who ought to be gone.
		backlog := f.backlog(running)
		for backlog > 0 {
			backlog -= f.piece(backlog)
			if running {
				break
			}
		}
		if running && backlog == 0 {
			f.waitForMore()
		}
		f.account(false)
	}
	if !f.leaving {
		f.partial = f.end(f.partial)
		f.came(f.spool.at())
	}
	f.account(true)
}

// backlog is how much is to be read. What is too much is left out.
func (f *follower) backlog(running bool) int64 {
	backlog, anew := f.spool.remaining()
	if anew {
		f.partial, f.role.spare = nil, 0
	}
	rushes := !f.spool.bounded && backlog > rush
	if rushes || !f.share.spent() {
		f.pause = rushPause
	} else {
		f.pause = min(2*f.pause, sharePause)
	}
	most := f.role.room(time.Now())
	if rushes && backlog > spoolSize && running {
		most = min(f.role.left, logLeast) // or it would take more room while it is read than is given back
	}
	if backlog > most {
		f.skip(backlog - most)
	}
	return min(backlog, most)
}

// skip leaves out what a role writes faster than its log may grow.
func (f *follower) skip(bytes int64) {
	f.spool.skip(bytes)
	f.partial = nil
	f.role.leaveOut(bytes)
	f.share.skipped += bytes
	f.came(f.spool.at())
}

// came keeps how far it came before it gives back the room of that: the next core is not to read what is not there any more.
func (f *follower) came(at int64) {
	whole := max(0, at-int64(len(f.partial)))
	f.offset.set(progress{forwarded: whole, copied: at})
	f.spool.giveBack(whole)
}

// piece takes a piece of a backlog, and returns how large it was. When the share is used up no line of it is looked at but the last ones, which may explain an
// end.
func (f *follower) piece(backlog int64) int64 {
	size := min(backlog, linePiece)
	rest := size
	if f.share.spent() {
		size = min(backlog, copyPiece)
		rest = min(size, logLeast)
	}
	if unseen := size - rest; unseen > 0 {
		f.partial = nil
		_, _ = io.CopyN(&countLines{f.role, &f.share.lines}, f.spool.file, unseen)
	}
	f.reader.Reset(io.TeeReader(io.LimitReader(f.spool.file, rest), f.role))
	f.partial = f.forward(f.reader, f.partial)
	f.came(f.spool.at())
	return size
}

// countLines counts the lines of what passes on its way to another writer.
type countLines struct {
	to    io.Writer
	lines *int
}

func (c *countLines) Write(p []byte) (int, error) {
	*c.lines += bytes.Count(p, []byte{'\n'})
	return c.to.Write(p)
}

// forward emits the whole lines that the reader has, and returns what is there of an unfinished one, at most a little more than maxLine: the
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
	f.log.Warn(strconv.Itoa(left.lines)+" lines left out", "bytes_unread", left.skipped, "file", f.role.path)
}

// waitForMore returns when there may be more to read, or something to account for.
func (f *follower) waitForMore() {
	if f.share.spent() {
		select {
		case <-f.stop:
			return
		case <-time.After(f.pause):
		}
	}
	var account <-chan time.Time
	if until := f.share.until(); !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		account = timer.C
	}
	select {
	case <-f.stop:
	case <-f.events.Changed:
	case <-account:
	}
}
