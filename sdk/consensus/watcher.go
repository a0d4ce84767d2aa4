package consensus

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// watcher is a Watcher within a prefix that may be closed while a watch begins. The one of package namespace must not.
type watcher struct {
	clientv3.Watcher                  // within the prefix
	within           clientv3.Watcher // the watcher below

	mu       sync.Mutex
	closed   bool
	starting sync.WaitGroup
}

func newWatcher(raw *clientv3.Client, prefix string) *watcher {
	within := clientv3.NewWatcher(raw)
	return &watcher{Watcher: namespace.NewWatcher(within, prefix), within: within}
}

// Watch implements clientv3.Watcher.
func (w *watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		ended := make(chan clientv3.WatchResponse)
		close(ended)
		return ended
	}
	w.starting.Add(1)
	w.mu.Unlock()
	defer w.starting.Done()
	return w.Watcher.Watch(ctx, key, options...)
}

// Close implements clientv3.Watcher.
func (w *watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	// Close ends watches that wait for a store that is away.
	err := w.within.Close()
	w.starting.Wait()
	return errors.Join(err, w.Watcher.Close())
}
