package event

import (
	"context"
	"sync"
)

// Value is a current value of type T. The zero Value is ready for use and empty until the first Set. It should have one writer; any number of
// goroutines may read it. Do not change what was set, because readers share it.
type Value[T any] struct {
	mu      sync.Mutex
	value   T
	version uint64        // 0: empty
	changed chan struct{} // closed by the next Set; nil while nobody waits
}

// New returns a Value that holds value.
func New[T any](value T) *Value[T] {
	return &Value[T]{value: value, version: 1}
}

// Set replaces the value and wakes all waiters. It never blocks.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.set(value)
}

// Update atomically replaces the value with change(present value). The present value is the zero T if nothing was set.
func (v *Value[T]) Update(change func(T) T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.set(change(v.value))
}

func (v *Value[T]) set(value T) {
	v.value = value
	v.version++
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Get returns the present value, and whether one was set.
func (v *Value[T]) Get() (T, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.version > 0
}

// Watch returns a watcher whose first Next returns the present value, as soon as there is one.
func (v *Value[T]) Watch() *Watcher[T] {
	return &Watcher[T]{value: v}
}

// Wait returns the first value, present or later, that accept accepts, or the context's error. Values that are replaced while accept runs are
// skipped.
func (v *Value[T]) Wait(ctx context.Context, accept func(T) bool) (T, error) {
	watcher := v.Watch()
	for {
		value, err := watcher.Next(ctx)
		if err != nil || accept(value) {
			return value, err
		}
	}
}

// Watcher follows a Value. It belongs to one goroutine and needs no closing.
type Watcher[T any] struct {
	value *Value[T]
	seen  uint64
}

// Next waits for a value that this watcher has not returned yet, and returns the newest one. It fails only with the context's error, and then returns
// the zero T.
func (w *Watcher[T]) Next(ctx context.Context) (T, error) {
	for {
		value, changed, ok := w.look()
		if ok {
			return value, nil
		}
		select {
		case <-ctx.Done():
			var zero T
			return zero, ctx.Err()
		case <-changed:
		}
	}
}

// Latest returns the present value without waiting, and whether one was set. Next then waits for a newer one.
func (w *Watcher[T]) Latest() (T, bool) {
	v := w.value
	v.mu.Lock()
	defer v.mu.Unlock()
	w.seen = v.version
	return v.value, v.version > 0
}

// Changed returns a channel that is closed when Next would not wait: for a select over several values, which are then read with Latest.
func (w *Watcher[T]) Changed() <-chan struct{} {
	v := w.value
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version > w.seen {
		return closed
	}
	return v.waiters()
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (w *Watcher[T]) look() (T, <-chan struct{}, bool) {
	v := w.value
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version > w.seen {
		w.seen = v.version
		return v.value, nil, true
	}
	var zero T
	return zero, v.waiters(), false
}

func (v *Value[T]) waiters() chan struct{} {
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}
