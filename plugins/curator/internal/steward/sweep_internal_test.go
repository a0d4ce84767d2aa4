package steward

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// sweeps is a store that counts how often it is swept.
type sweeps struct {
	Store
	err  error
	made int
}

func (s *sweeps) SweepIssued(context.Context, time.Time) (int, error) {
	s.made++
	return 0, s.err
}

// Certificates are swept at the beginning of a term, and then now and then, however often the steward looks at the cluster.
func TestSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sweeps{err: errors.New("the store is away")}
		w := &worker{config: Config{Store: s, Now: time.Now, Log: hclog.NewNullLogger()}, silent: make(map[string]time.Time)}
		if _, err := w.tend(t.Context(), new(store.State)); err == nil {
			t.Error("a sweep that failed is none")
		}
		s.err, s.made = nil, 0
		for want := 1; want <= 3; want++ {
			for range 3 {
				again, err := w.tend(t.Context(), new(store.State))
				if err != nil || again <= 0 || again > sweepEvery || s.made != want {
					t.Fatalf("swept %d times, want %d; again in %v, %v", s.made, want, again, err)
				}
				time.Sleep(again / 2)
			}
			time.Sleep(sweepEvery / 8)
		}
	})
}
