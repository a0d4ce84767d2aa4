package store

import "testing"

// TestApplying is for a member among others, whose own raft is not asked.
func TestApplying(t *testing.T) {
	var a applying
	for n, beat := range []struct {
		committed, applied uint64
		stands             bool
	}{
		{7, 7, false}, // nothing to do
		{7, 7, false},
		{9, 7, false}, // there is, since this beat
		{9, 8, false}, // and something was done
		{9, 8, true},
		{20, 8, true},
		{20, 20, false},
		{20, 20, false},
	} {
		if got := a.stands(beat.committed, beat.applied); got != beat.stands {
			t.Errorf("beat %d: %v, want %v", n, got, beat.stands)
		}
	}
}
