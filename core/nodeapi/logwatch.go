package nodeapi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchPause is how long changes of logs are gathered before those who follow are woken again: a role that floods its log must not keep the core busy
// with being told of it.
const watchPause = 10 * time.Millisecond

// watchedChanges is what is told of a directory of logs: what is written, what begins, and what takes a name.
const watchedChanges = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// logWatcher tells those who follow logs when these change. All share one inotify instance, of which a user has few; it is there while somebody follows.
// The zero logWatcher is ready for use.
type logWatcher struct {
	mu       sync.Mutex
	instance *inotify // nil while nobody follows
	watchers map[*logWatch]bool
}

// logWatch is one who follows a file.
type logWatch struct {
	directory int32 // the kernel's number for it
	name      string
	signal    chan struct{}
}

// inotify is the kernel's end. Its goroutine ends after it was closed.
type inotify struct {
	fd      int
	file    *os.File
	closing chan struct{}
	done    chan struct{}
}

// watch returns a channel from which can be received when the file may have changed, or another may have its name, since it was last received from. leave ends
// that.
func (w *logWatcher) watch(path string) (changed <-chan struct{}, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	started := w.instance == nil
	if started {
		if w.instance, err = newInotify(); err != nil {
			return nil, nil, err
		}
		w.watchers = make(map[*logWatch]bool)
	}
	// The same directory has the same number every time.
	directory, err := unix.InotifyAddWatch(w.instance.fd, filepath.Dir(path), watchedChanges)
	if err != nil {
		err = fmt.Errorf("inotify (fs.inotify.max_user_watches?): %w", err)
		if started {
			_ = w.instance.file.Close()
			w.instance = nil
		}
		return nil, nil, err
	}
	if started {
		go w.run(w.instance)
	}
	one := &logWatch{directory: int32(directory), name: filepath.Base(path), signal: make(chan struct{}, 1)}
	w.watchers[one] = true
	return one.signal, sync.OnceFunc(func() { w.leave(one) }), nil
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify (fs.inotify.max_user_instances?): %w", err)
	}
	return &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), closing: make(chan struct{}), done: make(chan struct{})}, nil
}

func (w *logWatcher) leave(one *logWatch) {
	w.mu.Lock()
	delete(w.watchers, one)
	instance := w.instance
	if len(w.watchers) > 0 {
		instance = nil
	} else {
		w.instance = nil
	}
	w.mu.Unlock()
	if instance != nil {
		close(instance.closing)
		_ = instance.file.Close()
		<-instance.done
	}
}

// run wakes those whose files changed until the instance is closed.
func (w *logWatcher) run(instance *inotify) {
	defer close(instance.done)
	changes := make([]byte, 16<<10)
	for {
		n, err := instance.file.Read(changes)
		select {
		case <-instance.closing:
			return
		default:
		}
		if err != nil {
			// Nothing is known any more: all look for themselves, as often as the pause lets them.
			n = 0
		}
		w.wake(instance, changes[:n], err != nil)
		select {
		case <-instance.closing:
			return
		case <-time.After(watchPause):
		}
	}
}

// wake tells those who follow a file that is among the changes.
func (w *logWatcher) wake(instance *inotify, changes []byte, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.instance != instance {
		return
	}
	for len(changes) >= unix.SizeofInotifyEvent {
		directory := int32(binary.NativeEndian.Uint32(changes))
		mask := binary.NativeEndian.Uint32(changes[4:])
		end := min(uint64(len(changes)), unix.SizeofInotifyEvent+uint64(binary.NativeEndian.Uint32(changes[12:])))
		name := string(bytes.TrimRight(changes[unix.SizeofInotifyEvent:end], "\x00"))
		changes = changes[end:]
		for one := range w.watchers {
			// If there were too many changes, the kernel does not say which.
			if mask&unix.IN_Q_OVERFLOW != 0 || one.directory == directory && one.name == name {
				one.tell()
			}
		}
	}
	if all {
		for one := range w.watchers {
			one.tell()
		}
	}
}

func (l *logWatch) tell() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}
