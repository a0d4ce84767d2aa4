package plugin

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxWatches is how many unused inotify instances are kept, in all the room that a user has by default (fs.inotify.max_user_instances).
const maxWatches = 64

// watches keeps inotify instances that are not in use for the next log: the kernel takes 10 ms to close one, for which nobody is to wait who waits for the end of
// a role. So there are never more than there were roles at once. The zero value has none.
type watches struct {
	mu   sync.Mutex
	idle []*os.File
}

// watch is an inotify instance that watches one file.
type watch struct {
	*os.File
	descriptor int
}

// watch begins to watch a file. A nil watches makes an instance each time.
func (w *watches) watch(path string) (*watch, error) {
	events, err := w.take()
	if err != nil {
		return nil, fmt.Errorf("inotify (fs.inotify.max_user_instances?): %w", err)
	}
	descriptor, err := control(events, func(fd int) (int, error) { return unix.InotifyAddWatch(fd, path, unix.IN_MODIFY) })
	if err != nil {
		w.put(events)
		return nil, fmt.Errorf("inotify (fs.inotify.max_user_watches?): %w", err)
	}
	return &watch{events, descriptor}, nil
}

// end ends a watch, which nobody may read any more.
func (w *watches) end(watch *watch) {
	// What the kernel had to tell of the file is read by the next one, which then looks once in vain.
	_, err := control(watch.File, func(fd int) (int, error) { return unix.InotifyRmWatch(fd, uint32(watch.descriptor)) })
	if err != nil && !errors.Is(err, unix.EINVAL) { // the file is gone, and the watch with it
		_ = watch.Close()
		return
	}
	w.put(watch.File)
}

func (w *watches) take() (*os.File, error) {
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if last := len(w.idle) - 1; last >= 0 {
			events := w.idle[last]
			w.idle = w.idle[:last]
			return events, nil
		}
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}

func (w *watches) put(events *os.File) {
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.idle) < maxWatches {
			w.idle = append(w.idle, events)
			return
		}
	}
	_ = events.Close()
}

// control calls a function with the descriptor of a file, which stays nonblocking.
func control(file *os.File, call func(fd int) (int, error)) (result int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(fd uintptr) { result, err = call(int(fd)) }); controlErr != nil {
		return 0, controlErr
	}
	return result, err
}
