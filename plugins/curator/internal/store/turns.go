package store

import (
	"context"
	"time"
)

// turn waits until no other change is under way in this curator, and returns what ends the turn. Changes that are made at the same time are not wrong, but all of them but one
// were made for nothing: each is decided on everything, which for the thousandth node that registers are a thousand records. What keeps changes apart is the comparison
// of the epoch alone. So one that waits for too long goes on without a turn, and one whose caller has given up finds out when it reads.
func (s *Store) turn(ctx context.Context) (end func()) {
	timer := time.NewTimer(s.turnWithin)
	defer timer.Stop()
	select {
	case s.changing <- struct{}{}:
		return func() { <-s.changing }
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
}
