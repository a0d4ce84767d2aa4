package contexts

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

// lock is a locked file. The kernel unlocks it when its holder dies.
type lock struct {
	file *os.File
}

// The pauses between two looks at a lock that somebody holds: the kernel tells nobody who can also be interrupted when it is free. Most are held for
// as long as a disk needs to sync, some for as long as a cluster needs to answer.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// acquire locks a file, which is made if it is not there. Without wait the error is ErrLocked if somebody holds it.
func acquire(ctx context.Context, path string, wait bool) (*lock, error) {
	pause := firstLook
	for {
		l, err := try(path)
		if !errors.Is(err, ErrLocked) || !wait {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastLook)
	}
}

func try(path string) (*lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	l := &lock{file: file}
	_, err = eintr.Retry(func() (struct{}, error) { return struct{}{}, unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// release unlocks the file.
func (l *lock) release() { _ = l.file.Close() }
