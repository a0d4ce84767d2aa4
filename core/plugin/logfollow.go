package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
	// rotateSize is the size from which a log is put aside when the next instance is launched, in bytes. One older log is kept.
	rotateSize = 16 << 20
	// pollLog is how often a log is looked at where the kernel has no more inotify instances to give.
	pollLog = time.Second
)

// openLog opens the log of a role for the standard error of an instance. What an instance writes is appended, so that a core that was
// replaced in the meantime and its successor's instances never overwrite each other.
func openLog(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && info.Size() > rotateSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
}

// follower forwards what an instance appends to its log into the core's log. It owns one goroutine, which ends after finish.
type follower struct {
	log    hclog.Logger
	file   *os.File
	events *os.File // inotify; nil if there is none
	stop   chan struct{}
	done   chan struct{}

	mu   sync.Mutex
	kept []string
}

// follow begins at the present end of the file.
func follow(log hclog.Logger, path string) (*follower, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f := &follower{log: log, file: file, stop: make(chan struct{}), done: make(chan struct{})}
	f.events, err = watchFile(path)
	if err != nil {
		log.Warn("the log is read once a second, since the kernel does not tell of its changes", "file", path, "error", err)
	}
	go f.run()
	return f, nil
}

func watchFile(path string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify (fs.inotify.max_user_instances?): %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("inotify (fs.inotify.max_user_watches?): %w", err)
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}

// finish forwards what is in the file now, and returns when that is done. Nobody may write any more.
func (f *follower) finish() {
	close(f.stop)
	if f.events != nil {
		_ = f.events.SetReadDeadline(time.Unix(1, 0))
	}
	<-f.done
	_ = f.file.Close()
	if f.events != nil {
		_ = f.events.Close()
	}
}

// lines are the last ones, oldest first.
func (f *follower) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.kept...)
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
		limit := int64(1) << 62
		if !running {
			// Somebody who ought to be gone may still write: that must not hold the end up.
			limit = f.remaining()
		}
		reader.Reset(io.LimitReader(f.file, limit))
		partial = f.forward(reader, partial)
		if running {
			f.waitForMore()
		}
	}
	if len(partial) > 0 {
		f.emit(partial)
	}
}

func (f *follower) remaining() int64 {
	offset, err := f.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	info, err := f.file.Stat()
	if err != nil {
		return 0
	}
	return max(0, info.Size()-offset)
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

func (f *follower) emit(raw []byte) {
	line := parseLine(raw)
	f.mu.Lock()
	f.kept = append(f.kept, cut(line.text(), keptLine))
	if len(f.kept) > keptLines {
		// A panic's first line says more than the last one of its trace.
		drop := 0
		if headline(f.kept[:1]) == headline(f.kept) {
			drop = 1
		}
		f.kept = append(f.kept[:drop], f.kept[drop+1:]...)
	}
	f.mu.Unlock()
	f.log.Log(line.level, line.message, line.fields...)
}

func (f *follower) waitForMore() {
	if f.events == nil {
		select {
		case <-f.stop:
		case <-time.After(pollLog):
		}
		return
	}
	var events [4096]byte
	_, _ = f.events.Read(events[:]) // which ends with an error when finish is called
}
