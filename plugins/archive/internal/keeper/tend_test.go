package keeper

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/plugins/archive/internal/curator"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// quiet is a host that only takes what is logged.
type quiet struct{ Host }

func (quiet) Logger() hclog.Logger { return hclog.NewNullLogger() }
func (quiet) Degraded(string)      {}

// source has snapshots of 100 bytes, some of which cannot be read.
type source struct {
	snapshots []curator.Snapshot
	fails     map[uint64]error
	reads     map[uint64]int
}

func (s *source) List(context.Context) ([]curator.Snapshot, error) { return s.snapshots, nil }

func (s *source) Read(_ context.Context, one curator.Snapshot) (io.ReadCloser, error) {
	s.reads[one.Number]++
	if err := s.fails[one.Number]; err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(make([]byte, 100))), nil
}

// shelf is a place in memory.
type shelf struct {
	copies map[snapshot.Name]int64
	put    func(ctx context.Context, read int64) (int64, error)
}

func (*shelf) Place() string { return "the shelf" }
func (*shelf) Close()        {}
func (s *shelf) List(context.Context) (map[snapshot.Name]int64, error) {
	return maps.Clone(s.copies), nil
}
func (s *shelf) Remove(_ context.Context, name snapshot.Name) error {
	delete(s.copies, name)
	return nil
}

func (s *shelf) Put(ctx context.Context, name snapshot.Name, _ int64, from io.Reader) error {
	n, err := io.Copy(io.Discard, from)
	if err == nil && s.put != nil {
		n, err = s.put(ctx, n)
	}
	if err != nil {
		return errors.New("cannot write on the shelf: make room there")
	}
	s.copies[name] = n
	return nil
}

// newRun returns a run with a place that has some copies, of which so many are kept.
func newRun(keep int, copies ...uint64) (*run, *source, *shelf) {
	from, to := &source{fails: make(map[uint64]error), reads: make(map[uint64]int)}, &shelf{copies: make(map[snapshot.Name]int64)}
	for _, number := range copies {
		to.copies[named(number, 0)] = 100
	}
	configured := &configuration.Granted{Configuration: &configuration.Configuration{Keep: keep}}
	states := &states{host: quiet{}, now: make(map[string]error)}
	return &run{Keeper: New(), host: quiet{}, configuration: configured, curator: from, kind: ofDirectory, states: states, held: make(map[snapshot.Name]failure)}, from, to
}

// tend has a place tended for a curator that has snapshots of these numbers, and holds what the problem is; empty: there is none.
func tend(t *testing.T, r *run, to *shelf, problem string, numbers ...uint64) {
	t.Helper()
	var had []curator.Snapshot
	for _, number := range numbers {
		had = append(had, curator.Snapshot{Name: named(number, 0), Bytes: 100})
	}
	if err := r.watched(t.Context(), func(ctx context.Context) error { return r.tend(ctx, to, had) }); (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
		t.Errorf("the problem is %v, want %q", err, problem)
	} else if err != nil && problem != "make room" && strings.Contains(err.Error(), "make room") {
		t.Errorf("the place is blamed: %v", err)
	}
}

// TestSourceFails holds that a snapshot which cannot be read keeps no other from being copied, and is not read in each round.
func TestSourceFails(t *testing.T) {
	r, from, to := newRun(0)
	from.fails[3], from.fails[2] = errors.New("it is damaged"), curator.ErrNone
	for range 2 {
		tend(t, r, to, "cannot read the snapshot 20261128T000000Z-3 of this node's curator: it is damaged", 3, 2, 1)
	}
	if from.reads[3] != 1 || to.copies[named(1, 0)] != 100 {
		t.Errorf("read %d times; there is %v", from.reads[3], to.copies)
	}
	r.lookEvery = 0
	tend(t, r, to, "it is damaged", 3, 2, 1)
	if from.reads[3] != 2 {
		t.Error("it was not read again at the next look")
	}
	tend(t, r, to, "", 2, 1)
	r, from, to = newRun(0)
	from.fails[2] = curator.ErrAway
	tend(t, r, to, "the curator does not answer", 2, 1)
	if from.reads[1] > 0 {
		t.Error("the curator is away, and is asked for the next one")
	}
	tend(t, r, to, "the curator does not answer", 2, 1)
	if from.reads[2] != 2 {
		t.Error("a curator that was away is not asked again in the next round")
	}
}

// TestSourceFailsAndFewAreKept holds that a snapshot which cannot be read takes the place of none that can.
func TestSourceFailsAndFewAreKept(t *testing.T) {
	r, from, to := newRun(1, 1)
	from.fails[3] = errors.New("it is damaged")
	for range 2 {
		tend(t, r, to, "it is damaged", 3, 2, 1)
		if len(to.copies) != 1 || to.copies[named(2, 0)] != 100 {
			t.Errorf("there is %v", to.copies)
		}
	}
	tend(t, r, to, "", 4, 3, 2, 1) // it would not be kept any more
}

// TestBeganAgain holds that nothing is removed, and all is copied, where the copies have higher numbers than what is new.
func TestBeganAgain(t *testing.T) {
	r, _, to := newRun(2, 9, 8, 7)
	tend(t, r, to, "the shelf has 3 copies with higher numbers than the newest snapshot, 20261128T000000Z-1: move them away", 1)
	if len(to.copies) != 4 {
		t.Errorf("there is %v", to.copies)
	}
	// There is room for the new one, which came later; and when it will be too many, is not known by its number.
	r, _, to = newRun(3, 9, 1)
	later := curator.Snapshot{Name: named(2, 5), Bytes: 100}
	for range 2 {
		if err := r.watched(t.Context(), func(ctx context.Context) error { return r.tend(ctx, to, []curator.Snapshot{later}) }); err == nil || !strings.Contains(err.Error(), "the shelf has 1 copies with higher") {
			t.Errorf("the problem is %v", err)
		}
	}
	if len(to.copies) != 3 {
		t.Errorf("there is %v", to.copies)
	}
	r.now = func() time.Time { return later.Asked }
	tend(t, r, to, "", 10)
	if shown := r.metrics.places[ofDirectory]; !shown.newest.Equal(later.Asked) {
		t.Errorf("the newest is shown to be of %s", shown.newest)
	}
}

// TestOtherSize holds that a copy which is not as long as what was written counts for nothing, and is not written in each round.
func TestOtherSize(t *testing.T) {
	r, from, to := newRun(1, 1)
	to.put = func(_ context.Context, read int64) (int64, error) { return read - 1, nil }
	for range 2 {
		tend(t, r, to, "the shelf does not have the copy of 20261128T000000Z-2 that was just written there, with 100 bytes", 2, 1)
	}
	var metrics bytes.Buffer
	if err := r.WriteMetrics(t.Context(), &metrics); err != nil || !strings.Contains(metrics.String(), `archive_copies{place="directory"} 1`+"\n") {
		t.Errorf("%v: %s", err, metrics.String())
	}
	if from.reads[2] != 1 || to.copies[named(1, 0)] != 100 {
		t.Errorf("written %d times; there is %v", from.reads[2], to.copies)
	}
	to.put, r.lookEvery = nil, 0
	tend(t, r, to, "", 2, 1)
	if len(to.copies) != 1 || to.copies[named(2, 0)] != 100 {
		t.Errorf("there is %v", to.copies)
	}
}

// TestStalled holds that a copy which does not go on is given up.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, to := newRun(0)
		to.put = func(ctx context.Context, _ int64) (int64, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		tend(t, r, to, "nothing has moved for 5m0s while 20261128T000000Z-1 was copied to the shelf", 1)
		to.put = func(context.Context, int64) (int64, error) { return 0, io.ErrShortWrite }
		tend(t, r, to, "make room", 1)
	})
}

// hung is a host whose states the test sees.
type hung struct {
	quiet
	ready, degraded chan string
}

func (h *hung) Ready()                 { h.ready <- "ready" }
func (h *hung) Degraded(reason string) { h.degraded <- reason }

// TestHangs holds that a place whose system calls do not return is told of, while the other one is kept.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &hung{ready: make(chan string, 10), degraded: make(chan string, 10)}
		states := &states{host: host, places: 2, now: make(map[string]error)}
		states.set(ofBucket, nil)
		r, from, to := newRun(0)
		r.states, r.host = states, host
		from.snapshots = []curator.Snapshot{{Name: named(1, 0), Bytes: 100}}
		release := make(chan struct{})
		to.put = func(_ context.Context, read int64) (int64, error) {
			<-release
			return read, nil
		}
		r.open = func() (Place, error) { return to, nil }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.keep(ctx)
		}()
		if reason := <-host.degraded; !strings.Contains(reason, "nothing has moved for 5m0s at the directory") || len(host.ready) > 0 {
			t.Errorf("the role is %q; it was ready %d times", reason, len(host.ready))
		}
		close(release)
		<-host.ready
		cancel()
		<-ended
	})
}

// TestNewest holds that a time which is ahead is not shown as it is.
func TestNewest(t *testing.T) {
	k, now := New(), time.Unix(1_800_000_000, 0)
	k.now = func() time.Time { return now }
	for ahead, want := range map[time.Duration]string{-time.Hour: "1799996400", time.Minute: "1800000000", time.Hour: "0"} {
		k.metrics.change(ofBucket, func(c *counts) { c.newest = now.Add(ahead) })
		var shown bytes.Buffer
		if err := k.WriteMetrics(t.Context(), &shown); err != nil || !strings.Contains(shown.String(), `archive_newest_seconds{place="bucket"} `+want+"\n") {
			t.Errorf("%s: %v: %s", ahead, err, shown.String())
		}
	}
}
