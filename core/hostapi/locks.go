package hostapi

import (
	"context"
	"sync"
)

// locks has a lock for every path that it was ever asked for: those that roles were granted, which are few. The zero value is ready for use.
type locks struct{ held sync.Map }

// lock acquires the lock of path, or returns the context's error.
func (l *locks) lock(ctx context.Context, path string) (unlock func(), err error) {
	known, _ := l.held.LoadOrStore(path, make(chan struct{}, 1))
	holder := known.(chan struct{})
	select {
	case holder <- struct{}{}:
		return func() { <-holder }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
