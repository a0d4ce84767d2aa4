package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestCompactionsDoNotWaitInLine has history grow all the time. A compaction takes two seconds: the next one begins when it has ended and others have had as long, with all that is old by then. One that fails is
// tried again.
func TestCompactionsDoNotWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		since := func() int64 { return int64(time.Since(began).Round(trimInterval) / trimInterval) }
		var compacted []int64
		var ends time.Time
		failed := false
		compact := func(_ context.Context, revision int64) error {
			if !failed {
				failed = true
				return errors.New("no quorum")
			}
			ends = time.Now().Add(2 * time.Second)
			compacted = append(compacted, revision)
			return nil
		}
		compactOld(ctx, since, compact, func() bool { return time.Now().Before(ends) })
		if want := []int64{21, 61}; !slices.Equal(compacted, want) {
			t.Errorf("after so many tenths of a second compactions began: %d, want %d", compacted, want)
		}
	})
}
