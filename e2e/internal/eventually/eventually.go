// Package eventually waits for what a test cannot be told of: it looks again and again, in short steps, until it is so or the time is up.
package eventually

import (
	"context"
	"testing"
	"time"
)

// step is the pause between two looks that take no time.
const step = 50 * time.Millisecond

// share is how many times as long as a look the pause after it is at least: a look may start a process, and is not to starve what it looks at, or what other tests wait for.
const share = 2

// True waits until look returns true, and otherwise fails the test after timeout with what look last said.
func True(t testing.TB, timeout time.Duration, what string, look func() (ok bool, seen string)) {
	t.Helper()
	if seen, ok := Try(t.Context(), timeout, step, look); !ok {
		t.Fatalf("not within %s: %s; last seen: %s", timeout, what, seen)
	}
}

// Try is True for the caller to judge, with a step of its own. The pause is at least as long as the look before it took, so that a look which starts a process takes no
// more than half of a processor from what it looks at.
func Try(ctx context.Context, timeout, step time.Duration, look func() (ok bool, seen string)) (seen string, ok bool) {
	deadline := time.Now().Add(timeout)
	for {
		began := time.Now()
		if ok, seen = look(); ok {
			return seen, true
		}
		if time.Now().After(deadline) {
			return seen, false
		}
		select {
		case <-ctx.Done():
			return seen, false
		case <-time.After(max(step, share*time.Since(began))):
		}
	}
}
