package store

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// together has calls made together that come at the same time: each of the thousand nodes of a cluster asks several times a second in all who it is and how its heartbeat
// stands, and of an exchange with the store its beginning costs the most. A call that comes alone waits for nobody. What is done for a call begins after the call has
// come, so that an answer is as new as that of a call of its own.
type together[K comparable, V any] struct {
	// do makes the calls for some keys, and returns the answer of each; a key without one has none.
	do func(ctx context.Context, keys []K) (map[K]V, error)
	// most is how many keys it takes.
	most int
	// gather is how long a turn waits for calls to come before it is made; 0: none waits for nobody.
	gather time.Duration
	// turns holds one for each turn that is under way.
	turns chan struct{}

	mu   sync.Mutex
	next *turn[K, V] // the one that gathers; nil: none does
}

// turn is calls that are made together.
type turn[K comparable, V any] struct {
	keys  []K // each once, however many ask for it
	asked map[K]bool
	done  chan struct{} // closed when the rest is there
	got   map[K]V
	errs  map[K]error // of the keys whose part failed
	// panicked is why the turn has none of these; "": it has.
	panicked string
}

func newTogether[K comparable, V any](atOnce, most int, do func(context.Context, []K) (map[K]V, error)) *together[K, V] {
	return &together[K, V]{do: do, most: most, turns: make(chan struct{}, atOnce)}
}

// call makes a call. It ends with ctx, and otherwise how long it takes is bounded by do.
func (t *together[K, V]) call(ctx context.Context, key K) (answer V, is bool, err error) {
	t.mu.Lock()
	mine := t.next
	if mine == nil {
		mine = &turn[K, V]{asked: make(map[K]bool), done: make(chan struct{})}
		t.next = mine
		// Nobody's own, since whoever waits for it may give up while others do not: it is made to its end.
		go t.take(context.WithoutCancel(ctx), mine)
	}
	if !mine.asked[key] {
		mine.asked[key] = true
		mine.keys = append(mine.keys, key)
	}
	t.mu.Unlock()
	select {
	case <-mine.done:
	case <-ctx.Done():
		return answer, false, context.Cause(ctx)
	}
	if mine.panicked != "" {
		panic(mine.panicked) // as a call of its own would have: whoever made it knows what to say of that
	}
	if err := mine.errs[key]; err != nil {
		return answer, false, err
	}
	answer, is = mine.got[key]
	return answer, is, nil
}

// take makes a turn when it is its turn: as long as the store does not answer all who come gather in one.
func (t *together[K, V]) take(ctx context.Context, mine *turn[K, V]) {
	time.Sleep(t.gather)
	t.turns <- struct{}{}
	t.mu.Lock()
	t.next = nil
	t.mu.Unlock()
	defer func() {
		if cause := recover(); cause != nil {
			mine.panicked = fmt.Sprintf("%v\n%s", cause, debug.Stack())
		}
		<-t.turns
		close(mine.done)
	}()
	t.make(ctx, mine)
}

func (t *together[K, V]) make(ctx context.Context, mine *turn[K, V]) {
	mine.got, mine.errs = make(map[K]V, len(mine.keys)), make(map[K]error)
	read := 0 // how many keys were asked for
	for keys := range slices.Chunk(mine.keys, t.most) {
		got, err := t.do(ctx, keys)
		if err == nil {
			maps.Copy(mine.got, got)
			read += len(keys)
			continue
		}
		// A store that does not answer is not asked for the others: they would wait for it one after another.
		for _, key := range mine.keys[read:] {
			if _, is := mine.got[key]; !is {
				mine.errs[key] = err
			}
		}
		return
	}
}
