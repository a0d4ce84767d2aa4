package store

import (
	"slices"
	"testing"
)

// TestLeaderForgetsLast has all members agree on whose turn it is to forget a CA, one after the other, whoever leads. Nobody waits for itself.
func TestLeaderForgetsLast(t *testing.T) {
	members := []uint64{1, 2, 3}
	for leader, want := range map[uint64][]uint64{0: {1, 2, 3}, 1: {2, 3, 1}, 2: {1, 3, 2}, 3: {1, 2, 3}} {
		var turns []uint64
		for range members {
			var ready []uint64
			for _, own := range members {
				waits := slices.ContainsFunc(members, func(other uint64) bool { return forgetsBefore(other, own, leader) && !slices.Contains(turns, other) })
				if !waits && !slices.Contains(turns, own) {
					ready = append(ready, own)
				}
			}
			if len(ready) != 1 {
				t.Fatalf("member %d leads: after %v it is the turn of %v", leader, turns, ready)
			}
			turns = append(turns, ready...)
		}
		if !slices.Equal(turns, want) {
			t.Errorf("member %d leads: the turns are %v, want %v", leader, turns, want)
		}
	}
}
