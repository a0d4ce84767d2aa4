package steward

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// DefaultTTL is after what time without a word another curator takes over. Nothing waits for the steward that could not wait for as long as that.
	DefaultTTL = 10 * time.Second
	// DefaultSilence is how long a node that is being decommissioned must have been silent to count as one that has ended what ran on it: much longer than a restart
	// takes.
	DefaultSilence = 10 * time.Minute

	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Store is what the steward reads and writes: a *store.Store.
type Store interface {
	Campaign(ctx context.Context, curator string, ttl time.Duration) (*store.Term, error)
	ReadCluster(ctx context.Context) (*store.State, error)
	SweepIssued(ctx context.Context, now time.Time) (swept int, err error)
	UpdateFenced(ctx context.Context, call store.Call, fence *store.Fence, decide func(*store.State) (*store.Change, error)) (*store.State, error)
}

var _ Store = (*store.Store)(nil)

// Config is what a steward needs.
type Config struct {
	Store     Store
	Snapshots *event.Value[*cache.Snapshot]
	// Call returns the call that the audit log keeps of a change that the steward makes: what it does, and about what.
	Call func(doing string, about map[string]string) store.Call
	// Curator tells this curator from the others, for people.
	Curator string
	Log     hclog.Logger
	Now     func() time.Time
	// TTL is in whole seconds; default DefaultTTL. Silence defaults to DefaultSilence.
	TTL, Silence time.Duration
}

// Run stands for election, and does the work for as long as it has won, until ctx is done.
func Run(ctx context.Context, config Config) {
	if config.TTL == 0 {
		config.TTL = DefaultTTL
	}
	if config.Silence == 0 {
		config.Silence = DefaultSilence
	}
	pause := newPause()
	for ctx.Err() == nil {
		err := term(ctx, config, pause.Reset)
		if ctx.Err() != nil {
			return
		}
		wait := pause.NextBackOff()
		config.Log.Debug("this curator's term as the steward did not begin, or is over", "error", err, "again_in", wait.Round(time.Millisecond))
		sleep(ctx, wait)
	}
}

func newPause() *backoff.ExponentialBackOff {
	pause := &backoff.ExponentialBackOff{InitialInterval: minPause, MaxInterval: maxPause, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	return pause
}

func sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// term wins an election and works until it is lost. It returns why it is over.
func term(ctx context.Context, config Config, won func()) error {
	held, err := config.Store.Campaign(ctx, config.Curator, config.TTL)
	if err != nil {
		return err
	}
	defer held.Resign()
	won()
	config.Log.Debug("this curator is the steward")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(held.Over(), func() { cancel(errors.New("the lease of the election ended")) })()
	w := &worker{config: config, fence: held.Fence(), silent: make(map[string]time.Time)}
	return w.work(ctx)
}

// worker does the work of one term.
type worker struct {
	config Config
	fence  *store.Fence
	swept  time.Time            // when certificates were last swept; zero: not in this term
	silent map[string]time.Time // since when nodes that are being decommissioned have been silent, as far as this term knows
}

// work looks at every snapshot, and at the newest again when time alone makes a difference. It returns when the term is over.
func (w *worker) work(ctx context.Context) error {
	pause := newPause()
	for watcher := w.config.Snapshots.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		for again := true; again; {
			again = false
			next, err := w.tend(ctx, snapshot.State)
			if errors.Is(err, store.ErrFenced) || ctx.Err() != nil {
				return err
			}
			if err != nil {
				next = pause.NextBackOff()
				w.config.Log.Warn("the steward could not do its work", "error", err, "again_in", next.Round(time.Millisecond))
			} else {
				pause.Reset()
			}
			if next == 0 {
				break
			}
			timer := time.NewTimer(next)
			select {
			case <-watcher.Changed():
			case <-timer.C:
				again = true
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}
