package store

import (
	"context"
	"time"
)

// impatience is how long a read waits for a store that has been away for longer than an election takes. What has come back answers in milliseconds.
const impatience = time.Second

// longest is how long a change is tried at most, whatever its caller would wait for.
const longest = time.Minute

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

// lasting bounds a change that was decided: nobody but this curator can find out whether a try of it that was not answered was made, so it is tried for as long as its caller
// waits. impatience before that ends the caller is told why, and without a deadline after as long as an exchange may take.
func (s *Store) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	within := s.answerWithin
	if deadline, is := ctx.Deadline(); is {
		within = max(within, min(longest, time.Until(deadline)-impatience))
	}
	return context.WithTimeout(ctx, within)
}
