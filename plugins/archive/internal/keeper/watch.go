package keeper

import (
	"errors"
	"strings"
	"sync"
	"time"
)

// errStalled is the cause of the end of a round that does not go on.
var errStalled = errors.New("nothing moves")

// watch tells when nothing has moved for a time.
type watch struct {
	mu    sync.Mutex
	ended bool
	after time.Duration
	timer *time.Timer
}

func newWatch(after time.Duration, stalled func()) *watch {
	w := &watch{after: after}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.ended {
			stalled()
		}
	})
	return w
}

// move notes that something moves.
func (w *watch) move() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.timer.Reset(w.after)
	}
}

// end ends the watch: nothing is told any more when it returns.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}

// states makes one state of those of the places.
type states struct {
	mu     sync.Mutex
	host   Host
	places int
	now    map[string]error
}

// set sets what is wrong with a place; nil: nothing. The role is Ready when nothing is wrong with any.
func (s *states) set(kind string, problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[kind] = problem
	if problem := errors.Join(s.now[ofDirectory], s.now[ofBucket]); problem != nil {
		s.host.Degraded(strings.ReplaceAll(problem.Error(), "\n", "; "))
	} else if len(s.now) == s.places {
		s.host.Ready()
	}
}
