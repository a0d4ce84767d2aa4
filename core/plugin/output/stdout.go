package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/filewatch"
)

// MaxFirstLine is the most that a handshake line may have, in bytes: a path and some numbers.
const MaxFirstLine = 4 << 10

// maxOutput is how much of what instances print to their standard output is kept before it is thrown away, in bytes.
const maxOutput = 64 << 10

// Stdout is the standard output of an instance: a file, the first line of which is the handshake and the rest of which is thrown away.
//
// It is a file and not a pipe, since an instance outlives its core: a pipe that nobody reads any more would end it with SIGPIPE, and one that the instance itself
// kept open would have it stand still when it is full. What is printed while no core runs takes room, on the tmpfs in which the
// instance may write anyway; the next core gives that back.
type Stdout struct {
	file  *os.File
	watch *filewatch.Watch
	stop  chan struct{}
	// line receives the first line once, which may be in part; it is closed after it.
	line chan string

	mu   sync.Mutex
	told bool // the first line was sent
	shut bool
}

// makeStdout makes the output of an instance that is to be launched. write is the instance's end, which the caller closes once the process has it.
func makeStdout(files *filewatch.Watcher, path string) (out *Stdout, write *os.File, err error) {
	write, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if out, err = adoptStdout(files, path, false); err != nil {
		return nil, nil, errors.Join(err, write.Close())
	}
	return out, write, nil
}

// adoptStdout looks after the output of an instance that is there. past says that its handshake is over.
func adoptStdout(files *filewatch.Watcher, path string, past bool) (*Stdout, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	watch, err := files.File(path)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	out := &Stdout{file: file, watch: watch, stop: make(chan struct{}), line: make(chan string, 1), told: past}
	if past {
		close(out.line)
	}
	go out.follow()
	return out, nil
}

func (o *Stdout) follow() {
	for {
		o.changed(o.watch.Closed())
		select {
		case <-o.stop:
			return
		case <-o.watch.Changed:
		}
	}
}

// Ended says that the process has ended: no more comes of its first line.
func (o *Stdout) Ended() { o.changed(true) }

// changed looks at what was printed. closed says that nobody prints any more.
func (o *Stdout) changed(closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	if !o.told {
		var head [MaxFirstLine]byte
		n, err := o.file.ReadAt(head[:], 0)
		line, _, whole := bytes.Cut(head[:n], []byte("\n"))
		if whole {
			line = head[:len(line)+1]
		}
		if !whole && n < len(head) && !closed && (err == nil || errors.Is(err, io.EOF)) {
			return
		}
		o.told = true
		o.line <- string(line) // one that is too long comes in part, and is then no handshake
		close(o.line)
	}
	if info, err := o.file.Stat(); err == nil && info.Size() > maxOutput {
		_ = o.file.Truncate(0) // it is opened for appending: what is printed next is at the beginning
	}
}

// Close looks at the output no longer. Whoever waits for its first line is given what there is of one. It may be called more than once, and of a process
// whose output the core does not have.
func (o *Stdout) Close() {
	if o == nil {
		return
	}
	o.changed(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	o.shut = true
	close(o.stop)
	o.watch.Stop()
	_ = o.file.Close()
}

// FirstLine waits for the first line. It may be called once.
func (o *Stdout) FirstLine() string { return <-o.line }
