package hostapi

import (
	"context"
	"sync"
)

// locks has a lock for each path in use. The zero value is ready for use.
type locks struct {
	mu   sync.Mutex
	held map[string]*pathLock
}

// pathLock is held by whoever put something into holder. It is removed when nobody holds it or waits for it.
type pathLock struct {
	holder chan struct{}
	users  int
}

// lock acquires the lock of path, or returns the context's error.
func (l *locks) lock(ctx context.Context, path string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[string]*pathLock)
	}
	lock := l.held[path]
	if lock == nil {
		lock = &pathLock{holder: make(chan struct{}, 1)}
		l.held[path] = lock
	}
	lock.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		lock.users--
		if lock.users == 0 {
			delete(l.held, path)
		}
	}
	select {
	case lock.holder <- struct{}{}:
		return func() {
			<-lock.holder
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
