// Package awake bounds waiting by the time in which this process ran. A process that was stopped (SIGSTOP, a debugger, a container that was frozen)
// or whose machine was suspended finds its timers over at once when it goes on, before it has seen the answers that came meanwhile. Whoever
// decides by such a timer that another process is dead is wrong.
//
// It owns nothing but its timers, watches and publishes nothing.
package awake

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrElapsed is the cause with which a context of WithTimeout ends when its time is over.
var ErrElapsed = errors.New("the time is over")

const (
	// parts is in how many steps a time is measured, and longest how long a step is at most. A stop of the process, however long, counts as one
	// step: little enough to be no matter, and long enough to wake nobody without need.
	parts   = 20
	longest = time.Second
)

// WithTimeout returns a context that ends when this process has run for about d, with ErrElapsed as its cause. Time in which it was stopped or suspended
// counts as the twentieth part of d at most. The caller calls cancel when it waits no longer, as for every context.
func WithTimeout(parent context.Context, d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	t := &timer{ctx: ctx, end: end, left: d, step: max(min(d/parts, longest), time.Millisecond)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(min(t.left, t.step), t.tick)
	return ctx, t.stop
}

type timer struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	step time.Duration

	mu    sync.Mutex
	timer *time.Timer
	left  time.Duration
}

// tick takes off what was waited for, not what has passed.
func (t *timer) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	t.left -= min(t.left, t.step)
	if t.left <= 0 {
		t.end(ErrElapsed)
		return
	}
	t.timer.Reset(min(t.left, t.step))
}

func (t *timer) stop() {
	t.end(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
}
