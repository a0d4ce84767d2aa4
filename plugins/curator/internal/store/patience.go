package store

import (
	"context"
	"time"
)

// impatience is how long a read waits for a store that has been away for longer than an election takes. What has come back answers in milliseconds.
const impatience = time.Second

// patiently bounds a read, with which every call of the cluster API begins. The store may elect a leader at this moment, which is waited for: so a call does not fail because
// a leader has died. But a store that has let somebody wait in vain for that long is cut off from its quorum, and there are other curators that have one: until it
// answers again, calls are told so soon, and whoever makes them asks the next curator.
func (s *Store) patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.patience())
}

func (s *Store) patience() time.Duration {
	if s.away.Load() {
		return min(s.answerWithin, impatience)
	}
	return s.answerWithin
}
