package event

import (
	"context"
	"iter"
)

// Changes returns an iterator over the present value, as soon as there is one, and those that it is replaced by, until ctx is done. Who takes long over one gets the newest next,
// and not all that there were in between.
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
