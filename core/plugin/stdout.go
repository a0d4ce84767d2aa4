package plugin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxOutput is how much of what instances print to their standard output is kept before it is thrown away, in bytes.
	maxOutput = 64 << 10
	// pollOutput is how often outputs are looked at where the kernel has no inotify instance to give.
	pollOutput = 10 * time.Millisecond
)

// outputs are the standard outputs of the node's instances: files, the first line of which is the handshake and the rest of which is thrown away.
//
// Files and not pipes, since an instance outlives its core: a pipe that nobody reads any more would end it with SIGPIPE, and one that the instance itself
// kept open would have it stand still when it is full. What is printed while no core runs takes room, on the tmpfs in which the
// instance may write anyway; the next core gives that back.
//
// One goroutine looks after all of them, as long as there is one.
type outputs struct {
	mu     sync.Mutex
	open   map[int]*output // by watch descriptor, or by a number of their own where there is no inotify
	events *os.File        // inotify; nil while there is no output, or if the kernel has none to give
	next   int
	stop   chan struct{} // ends the goroutine that looks at outputs without inotify
	worker sync.WaitGroup
}

// output is the standard output of one instance.
type output struct {
	of    *outputs
	watch int
	file  *os.File
	// line receives the first line once, which may be in part; it is closed after it.
	line chan string

	mu   sync.Mutex
	told bool // the first line was sent
	shut bool
}

// make makes the output of an instance that is to be launched. write is the instance's end, which the caller closes once the process has it.
func (o *outputs) make(path string) (out *output, write *os.File, err error) {
	write, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if out, err = o.take(path, false); err != nil {
		return nil, nil, errors.Join(err, write.Close())
	}
	return out, write, nil
}

// take looks after the output of an instance that is there. past says that its handshake is over.
func (o *outputs) take(path string, past bool) (*output, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	out := &output{of: o, file: file, line: make(chan string, 1), told: past}
	if past {
		close(out.line)
	}
	o.add(out, path)
	out.changed(false)
	return out, nil
}

func (o *outputs) add(out *output, path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = make(map[int]*output)
	}
	if len(o.open) == 0 {
		o.begin()
	}
	if o.events != nil {
		watch, err := addWatch(o.events, path)
		if err == nil {
			out.watch = watch
			o.open[watch] = out
			return
		}
	}
	// Without inotify, or without another watch: the numbers of watches are positive.
	o.next--
	out.watch = o.next
	o.open[out.watch] = out
	if o.stop == nil {
		stop := make(chan struct{})
		o.stop = stop
		o.worker.Go(func() { o.poll(stop) })
	}
}

func addWatch(events *os.File, path string) (watch int, err error) {
	raw, err := events.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(fd uintptr) {
		watch, err = unix.InotifyAddWatch(int(fd), path, unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	}); controlErr != nil {
		return 0, controlErr
	}
	return watch, err
}

// begin starts to look. It is called with the lock.
func (o *outputs) begin() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	events := os.NewFile(uintptr(fd), "inotify")
	o.events = events
	o.worker.Go(func() { o.follow(events) })
}

func (o *outputs) follow(events *os.File) {
	var buffer [16 << 10]byte
	for {
		n, err := events.Read(buffer[:])
		if err != nil {
			return // closed
		}
		o.handleEvents(events, buffer[:n])
	}
}

// handleEvents looks at the outputs that events are about. Those of an inotify instance that is closed are about none: another one gives the same numbers again.
func (o *outputs) handleEvents(events *os.File, raw []byte) {
	for len(raw) >= unix.SizeofInotifyEvent {
		watch := int(int32(binary.NativeEndian.Uint32(raw)))
		mask := binary.NativeEndian.Uint32(raw[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(raw[12:]))
		raw = raw[min(size, len(raw)):]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			o.all()
			continue
		}
		var out *output
		o.mu.Lock()
		if o.events == events {
			out = o.open[watch]
		}
		o.mu.Unlock()
		if out != nil {
			out.changed(mask&unix.IN_CLOSE_WRITE != 0)
		}
	}
}

func (o *outputs) poll(stop <-chan struct{}) {
	ticker := time.NewTicker(pollOutput)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			o.all()
		}
	}
}

func (o *outputs) all() {
	o.mu.Lock()
	var open []*output
	for _, out := range o.open {
		open = append(open, out)
	}
	o.mu.Unlock()
	for _, out := range open {
		out.changed(false)
	}
}

// changed looks at what was printed. closed says that nobody prints any more.
func (o *output) changed(closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	if !o.told {
		var head [handshakeLine]byte
		n, err := o.file.ReadAt(head[:], 0)
		line, _, whole := bytes.Cut(head[:n], []byte("\n"))
		if whole {
			line = head[:len(line)+1]
		}
		if !whole && n < len(head) && !closed && (err == nil || errors.Is(err, io.EOF)) {
			return
		}
		o.tell(string(line)) // one that is too long comes in part, and is then no handshake
	}
	if info, err := o.file.Stat(); err == nil && info.Size() > maxOutput {
		_ = o.file.Truncate(0) // it is opened for appending: what is printed next is at the beginning
	}
}

func (o *output) tell(line string) {
	o.told = true
	o.line <- line
	close(o.line)
}

// close looks at the output no longer. Whoever waits for its first line is given what there is of one. It may be called more than once, and of a process
// whose output the core does not have.
func (o *output) close() {
	if o == nil {
		return
	}
	o.changed(true)
	o.mu.Lock()
	if o.shut {
		o.mu.Unlock()
		return
	}
	o.shut = true
	o.mu.Unlock()
	o.of.remove(o)
	_ = o.file.Close()
}

func (o *outputs) remove(out *output) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, out.watch)
	if out.watch > 0 && o.events != nil {
		if raw, err := o.events.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(out.watch)) })
		}
	}
	if len(o.open) > 0 {
		return
	}
	if o.events != nil {
		_ = o.events.Close()
		o.events = nil
	}
	if o.stop != nil {
		close(o.stop)
		o.stop = nil
	}
}

// read waits for the first line.
func (o *output) read() string { return <-o.line }
