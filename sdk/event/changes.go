package event

import (
	"context"
	"iter"
)

// Changes returns an iterator over the present value, as soon as there is one, and later ones, until ctx is done. A slow consumer gets the newest
// value next and skips those in between.
func (v *Value[T]) Changes(ctx context.Context) iter.Seq[T] {
	return func(yield func(T) bool) {
		for watcher := v.Watch(); ctx.Err() == nil; {
			value, err := watcher.Next(ctx)
			if err != nil || !yield(value) {
				return
			}
		}
	}
}
