package output

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/filewatch"
)

const (
	// keptLines is how many lines explain an end: the first lines of a Go panic and its trace fit.
	keptLines = 20
	// keptLine bounds such a line, in bytes: it goes into errors and reasons.
	keptLine = 512
	// copyPiece is how much is copied before the room of it is given back, in bytes.
	copyPiece = 1 << 20
)

// Stderr is the standard error of an instance. It takes what the instance writes out of its spool and into the log of the role. It owns one goroutine, which ends
// after Finish.
type Stderr struct {
	log    hclog.Logger
	spool  *spool
	role   *roleLog
	events *filewatch.Watch
	stop   chan struct{}
	done   chan struct{}
	offset *logOffset // of run's goroutine

	mu sync.Mutex
	// end is the last of what was copied: logLeast bytes, or less if there was no more, and at most a few times as much.
	end []byte
	// panicked is the first line before end that tells a panic; "": there is none.
	panicked string
}

// follow reads a spool from where the core before came to. How far it has come it keeps in offset, which it closes in the end, like the spool. begins is the ID of the
// instance if it begins now; empty: it runs already.
func follow(log hclog.Logger, spool *spool, path string, from int64, offset *logOffset, files *filewatch.Watcher, begins string) (*Stderr, error) {
	role, err := openRoleLog(log, path)
	if err != nil {
		offset.close()
		return nil, errors.Join(err, spool.close())
	}
	if info, err := spool.file.Stat(); err == nil && info.Size() < from {
		from = 0 // the instance has emptied it
	}
	spool.seek(from)
	offset.set(from)
	f := &Stderr{log: log, spool: spool, role: role, stop: make(chan struct{}), done: make(chan struct{}), offset: offset}
	if f.events, err = files.File(spool.path); err != nil {
		offset.close()
		return nil, errors.Join(err, role.close(), spool.close())
	}
	if f.events.Polled != nil {
		log.Warn("what the role writes is looked for again and again, since the kernel does not tell of it", "file", spool.path, "error", f.events.Polled)
	}
	if begins != "" {
		role.begin(begins)
	}
	go f.run()
	return f, nil
}

// Finish copies what is in the spool now, and returns when that is done. What is written afterwards is for the next core.
func (f *Stderr) Finish() {
	close(f.stop)
	<-f.done
	f.offset.close()
	_ = f.role.close()
	_ = f.spool.close()
	f.events.Stop()
}

// Lines are the last ones, oldest first.
func (f *Stderr) Lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts := []string{f.panicked}
	for line := range bytes.Lines(f.end) {
		texts = append(texts, lineText(line))
	}
	return LastLines(texts, keptLines, keptLine)
}

// Tell puts the last lines of an instance that failed into the core's log.
func (f *Stderr) Tell() {
	for _, line := range f.Lines() {
		f.log.Warn(line)
	}
}

func (f *Stderr) run() {
	defer close(f.done)
	for running := true; running; {
		// Asked before the spool is read: what was written before Finish is then read in this turn.
		select {
		case <-f.stop:
			running = false
		default:
		}
		// No more than is there now: somebody may write for ever, also one who ought to be gone.
		backlog := f.backlog(running)
		for backlog > 0 {
			piece := min(backlog, copyPiece)
			_, _ = io.CopyN(f, f.spool.file, piece)
			f.came()
			backlog -= piece
			if running {
				break
			}
		}
		if running && backlog == 0 {
			select {
			case <-f.stop:
			case <-f.events.Changed:
			}
		}
	}
}

// backlog is how much is to be read. What is too much is left out.
func (f *Stderr) backlog(running bool) int64 {
	backlog := f.spool.remaining()
	most := f.role.room(time.Now())
	if !f.spool.bounded && backlog > spoolSize && running {
		most = min(f.role.left, logLeast) // or it would take more room while it is read than is given back
	}
	if backlog > most {
		f.spool.skip(backlog - most)
		f.role.leaveOut(backlog - most)
		f.came()
	}
	return min(backlog, most)
}

// came keeps how far it came before it gives back the room of that: the next core is not to read what is not there any more.
func (f *Stderr) came() {
	at := f.spool.at()
	f.offset.set(at)
	f.spool.giveBack(at)
}

// Write takes a piece of what the instance wrote.
func (f *Stderr) Write(p []byte) (int, error) {
	f.mu.Lock()
	if f.end = append(f.end, p...); len(f.end) > 2*logLeast {
		old := len(f.end) - logLeast
		if whole := bytes.LastIndexByte(f.end[:old], '\n') + 1; whole > 0 {
			old = whole
		}
		for line := range bytes.Lines(f.end[:old]) {
			if text := lineText(line); f.panicked == "" && tellsPanic(text) {
				f.panicked = text
			}
		}
		f.end = append(f.end[:0], f.end[old:]...)
	}
	f.mu.Unlock()
	return f.role.Write(p)
}
