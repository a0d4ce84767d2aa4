package filewatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pause is how long changes are gathered before those who watch are woken again: whoever writes without an end must not keep the process busy with being told of it.
const pause = 10 * time.Millisecond

// poll is how often those are woken for whom the kernel has no instance or watch.
const poll = 100 * time.Millisecond

// Watcher tells of changes of files. It has one inotify instance and one goroutine while somebody watches, and neither while nobody does. The zero Watcher is ready for use, by
// several goroutines at once.
type Watcher struct {
	mu       sync.Mutex
	instance *instance // nil while nobody watches
	running  sync.WaitGroup
}

// instance is the kernel's end. Its goroutine closes it.
type instance struct {
	fd      int
	file    *os.File
	stop    chan struct{}
	watches map[int32]map[*Watch]bool // by the kernel's number
}

// Watch is one who watches a file.
type Watch struct {
	// Changed receives when the file may have changed since it was last received from. It is never closed.
	Changed <-chan struct{}
	// Polled says why the kernel does not tell of changes: it has no more instances or watches to give. Changed receives all the time then. Nil: it tells.
	Polled error

	closed   atomic.Bool
	of       *Watcher
	instance *instance
	stop     chan struct{} // of one that is polled
	number   int32
	name     string // in the directory that is watched; empty: the file itself is watched
	any      bool   // every name in the directory
	signal   chan struct{}
}

// File watches what is written to a file that is there, under whatever name it will have.
func (w *Watcher) File(path string) (*Watch, error) {
	return w.add(path, "", false, unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
}

// Directory watches which files there are in a directory, and whether it is itself there.
func (w *Watcher) Directory(path string) (*Watch, error) {
	return w.add(path, "", true, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
}

// Name watches what is written to the file that has this path, and which file that is, if any. The directory must be there.
func (w *Watcher) Name(path string) (*Watch, error) {
	return w.add(filepath.Dir(path), filepath.Base(path), false, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_ONLYDIR)
}

// Closed reports whether somebody who had the file open for writing has closed it.
func (o *Watch) Closed() bool { return o.closed.Load() }

func (w *Watcher) add(path, name string, any bool, changes uint32) (*Watch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	signal := make(chan struct{}, 1)
	watch := &Watch{Changed: signal, of: w, instance: w.instance, name: name, any: any, signal: signal}
	var err error
	if watch.instance == nil {
		watch.instance, err = newInstance()
	}
	number := 0
	if err == nil {
		if number, err = unix.InotifyAddWatch(watch.instance.fd, path, changes); err != nil {
			err = fmt.Errorf("filewatch: cannot watch %s: %w: raise fs.inotify.max_user_watches if it is used up", path, err)
		}
		if err != nil && w.instance == nil {
			_ = watch.instance.file.Close()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		stop := make(chan struct{})
		watch.Polled, watch.stop = err, stop
		w.running.Go(func() { watch.poll(stop) })
		return watch, nil
	case w.instance == nil:
		w.instance = watch.instance
		w.running.Go(func() { w.run(watch.instance) })
	}
	watch.number = int32(number)
	// A file or directory has the same number each time.
	if watch.instance.watches[watch.number] == nil {
		watch.instance.watches[watch.number] = make(map[*Watch]bool)
	}
	watch.instance.watches[watch.number][watch] = true
	return watch, nil
}

func (o *Watch) poll(stop <-chan struct{}) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			o.tell()
		}
	}
}

func newInstance() (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("filewatch: cannot make an inotify instance: %w: raise fs.inotify.max_user_instances if it is used up", err)
	}
	return &instance{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), stop: make(chan struct{}), watches: make(map[int32]map[*Watch]bool)}, nil
}

// Stop ends the watch. It does not wait for the kernel, which takes 10 ms to close an instance. It may be called more than once.
func (o *Watch) Stop() {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if o.Polled != nil {
		if o.stop != nil {
			close(o.stop)
			o.stop = nil
		}
		return
	}
	in := o.instance
	if !in.watches[o.number][o] {
		return
	}
	delete(in.watches[o.number], o)
	if len(in.watches[o.number]) > 0 {
		return
	}
	delete(in.watches, o.number)
	if len(in.watches) > 0 {
		// It fails for a file that is gone, whose watch is gone with it.
		_, _ = unix.InotifyRmWatch(in.fd, uint32(o.number))
		return
	}
	o.of.instance = nil
	close(in.stop)
	_ = in.file.SetReadDeadline(time.Unix(1, 0))
}

// Wait returns when nobody watches any more and the goroutine has ended.
func (w *Watcher) Wait() { w.running.Wait() }

// run wakes those whose files changed until the last of them stops.
func (w *Watcher) run(in *instance) {
	defer func() { _ = in.file.Close() }()
	changes := make([]byte, 16<<10)
	for {
		n, err := in.file.Read(changes)
		w.wake(in, changes[:n], err != nil)
		select {
		case <-in.stop:
			return
		case <-time.After(pause):
		}
	}
}

// wake signals to those whose files are among the changes. all says that nobody knows what changed.
func (w *Watcher) wake(in *instance, changes []byte, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(changes) >= unix.SizeofInotifyEvent {
		number := int32(binary.NativeEndian.Uint32(changes))
		mask := binary.NativeEndian.Uint32(changes[4:])
		end := min(uint64(len(changes)), unix.SizeofInotifyEvent+uint64(binary.NativeEndian.Uint32(changes[12:])))
		name := string(bytes.TrimRight(changes[unix.SizeofInotifyEvent:end], "\x00"))
		changes = changes[end:]
		// If there were too many changes, the kernel does not say which.
		all = all || mask&unix.IN_Q_OVERFLOW != 0
		for watch := range in.watches[number] {
			if watch.any || watch.name == name {
				if mask&unix.IN_CLOSE_WRITE != 0 {
					watch.closed.Store(true)
				}
				watch.tell()
			}
		}
	}
	if !all {
		return
	}
	for _, watches := range in.watches {
		for watch := range watches {
			watch.tell()
		}
	}
}

func (o *Watch) tell() {
	select {
	case o.signal <- struct{}{}:
	default:
	}
}
