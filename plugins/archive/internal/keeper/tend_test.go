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

// source has snapshots of 100 bytes, some of which cannot be read.
type source struct {
	fails map[uint64]error
	reads map[uint64]int
}

func (s *source) List(context.Context) ([]curator.Snapshot, error) { return nil, nil }

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
	return &run{Keeper: New(), host: quiet{}, configuration: configured, curator: from, held: make(map[attempt]failure)}, from, to
}

// tend has a place tended for a curator that has snapshots of these numbers, and holds what the problem is; empty: there is none.
func tend(t *testing.T, r *run, to *shelf, problem string, numbers ...uint64) {
	t.Helper()
	var had []curator.Snapshot
	for _, number := range numbers {
		had = append(had, curator.Snapshot{Name: named(number, 0), Bytes: 100})
	}
	if err := r.tend(t.Context(), ofDirectory, to, had); (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
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

// TestBeganAgain holds that nothing is removed where the copies have higher numbers than what is new.
func TestBeganAgain(t *testing.T) {
	r, _, to := newRun(2, 9, 8, 7)
	tend(t, r, to, "the shelf has 2 copies with higher numbers than the newest snapshot, 20261128T000000Z-1: move them away", 1)
	if len(to.copies) != 3 {
		t.Errorf("there is %v", to.copies)
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
