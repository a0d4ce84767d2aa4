package enrolment

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
)

const (
	// atOnce is how many registrations one curator makes at a time. Each reads all nodes, and they get in each other's way in the store; a rack that is
	// switched on at once takes its turns, for turnWithin each.
	atOnce     = 4
	turnWithin = 5 * time.Second
	// knownAtOnce and strangersAtOnce are how many other calls are looked up at a time, of those whose key is that of a node and of all others: a Join reads all nodes too,
	// for anybody who has made a key, and nobody's node waits behind strangers.
	knownAtOnce     = 16
	strangersAtOnce = 8
	// failuresBurst and failuresEvery bound how often strangers at one address may fail: so many at once, and then one in that time. A secret cannot be guessed
	// in any number of tries; it is the store that is not to be asked for nothing.
	failuresBurst = 30
	failuresEvery = 2 * time.Second
	// mostHosts is of how many addresses failures are counted. Beyond it those are forgotten that have none left to make up for, and then any.
	mostHosts = 4096
)

// turn waits until one more call of a kind may be answered, and returns what ends it.
func turn(ctx context.Context, turns chan struct{}, crowded string) (done func(), err error) {
	waiting := time.NewTimer(turnWithin)
	defer waiting.Stop()
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-waiting.C:
		return nil, answer.Errorf(codes.ResourceExhausted, "too many machines %s at once: try again in a moment", crowded)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// failures counts the failed calls of strangers, by host.
type failures struct {
	now func() time.Time

	mu sync.Mutex
	by map[string]*tries
}

// tries is what a host has left.
type tries struct {
	limiter *rate.Limiter
	pending int // calls that are under way, each of which may fail
}

func newFailures(now func() time.Time) *failures {
	return &failures{now: now, by: make(map[string]*tries)}
}

// allow reports whether a host may try once more.
func (f *failures) allow(host string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.by[host]
	return of == nil || of.left(f.now())
}

func (t *tries) left(now time.Time) bool { return t.limiter.TokensAt(now) >= float64(t.pending)+1 }

// attempt is a call of a stranger that has begun, and counts as one that failed until it ends. A nil one is that of somebody known.
type attempt struct {
	of     *failures
	tries  *tries
	failed bool
}

// begin counts a call that a host may make; nil: it may make none.
func (f *failures) begin(host string) *attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	of := f.by[host]
	if of == nil {
		if !f.room(now) {
			return nil
		}
		of = &tries{limiter: rate.NewLimiter(rate.Every(failuresEvery), failuresBurst)}
		f.by[host] = of
	}
	if !of.left(now) {
		return nil
	}
	of.pending++
	return &attempt{of: f, tries: of}
}

// fail has a call stay one that failed.
func (a *attempt) fail() {
	if a != nil {
		a.failed = true
	}
}

// end gives back what a call was counted as, unless it has failed.
func (a *attempt) end() {
	if a == nil {
		return
	}
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.tries.pending--
	if a.failed {
		a.tries.limiter.AllowN(a.of.now(), 1)
	}
}

// room makes room for one more host, and reports whether there is any: calls that are under way are not forgotten.
func (f *failures) room(now time.Time) bool {
	if len(f.by) < mostHosts {
		return true
	}
	for host, of := range f.by {
		if of.pending == 0 && of.limiter.TokensAt(now) >= failuresBurst {
			delete(f.by, host)
		}
	}
	for host, of := range f.by {
		if len(f.by) < mostHosts {
			break
		}
		if of.pending == 0 {
			delete(f.by, host)
		}
	}
	return len(f.by) < mostHosts
}
