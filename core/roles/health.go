package roles

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reeveproject/reeve/core/awake"
)

// health asks an instance for as long as it runs whether it is well, one question at a time. It owns one goroutine.
type health struct {
	// lost receives what is wrong, once, with an instance that is to be ended.
	lost  chan string
	end   context.CancelFunc
	asker sync.WaitGroup
}

func follow(instance Running, l Liveness, hung func(context.Context) time.Time) *health {
	ctx, cancel := context.WithCancel(context.Background())
	h := &health{lost: make(chan string, 1), end: cancel}
	short := l.Timeout / 4
	again := Liveness{Interval: l.Interval, Timeout: short}
	// forgiven reports whether the disk is why the role did not answer. One that was away for too short a time to count may answer again by now; then so does the role.
	forgiven := func(asked time.Time) bool {
		if hung == nil {
			return false
		}
		tried := time.Now()
		return !hung(ctx).Before(asked) || time.Since(tried) >= short && again.ask(ctx, instance) == ""
	}
	h.asker.Go(func() {
		for l.rest(ctx, l.Interval) {
			asked := time.Now()
			wrong := l.ask(ctx, instance)
			if wrong == "" || forgiven(asked) {
				continue
			}
			h.lost <- wrong
			return
		}
	})
	return h
}

// stop ends the asking, and returns when it has ended.
func (h *health) stop() {
	h.end()
	h.asker.Wait()
}

// ask asks until the instance is well, and then returns nothing; or until it has not been for the timeout, and then returns what is wrong. The
// timeout runs only while the core does, so that the core's own absence is never taken for the role's: what was answered meanwhile is heard first.
func (l Liveness) ask(ctx context.Context, instance Running) (wrong string) {
	patience, cancel := awake.WithTimeout(ctx, l.Timeout)
	defer cancel()
	wrong = "it did not answer for " + spell(l.Timeout)
	for {
		err := instance.CheckHealth(patience)
		switch {
		case err == nil || ctx.Err() != nil:
			return ""
		case patience.Err() == nil:
			wrong = fmt.Sprintf("it was not well for %s: %s", spell(l.Timeout), err)
		}
		if !l.rest(patience, min(l.Interval, l.Timeout/4)) {
			break
		}
	}
	if !errors.Is(context.Cause(patience), awake.ErrElapsed) {
		return "" // nobody asks any more
	}
	return wrong
}

// rest waits, and reports whether the context has not ended meanwhile.
func (l Liveness) rest(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}
