package cluster

import (
	"context"
	"errors"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// firstTTL is how long a heartbeat is taken to count before the curator has said it.
	firstTTL = 10 * time.Second
	// minBeatTimeout is the least time that a heartbeat may take, however short the curator's TTL is: a loaded machine is not a dead one.
	minBeatTimeout = time.Second
	// maxBeatTimeout is the most that it may take while there is another curator to go to: longer than the store needs to elect a leader.
	maxBeatTimeout = 3 * time.Second
	// beatsPerTTL is how many heartbeats are sent while one counts: one may be lost and one late, and the node still lives.
	beatsPerTTL = 3
)

// beating is how the heartbeat is, for the judge of contact.
type beating struct {
	// last is when the last call that succeeded was sent: the lease began then or later. Zero: none has.
	last time.Time
	// ttl is how long it counts.
	ttl time.Duration
	// problem is what the calls have failed of since failing; empty: the last one did not fail.
	problem string
	failing time.Time
}

// heartbeat says that the node lives until it fails.
func (s *session) heartbeat(ctx context.Context, made func()) error {
	before, _ := s.beating.Get()
	ttl := before.ttl
	if ttl == 0 {
		ttl = firstTTL
	}
	for {
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, s.beatTimeout(ttl))
		response, err := s.api.Heartbeat(call, &clusterv1.HeartbeatRequest{})
		cancel()
		if err == nil && response.GetTtlSeconds() == 0 {
			err = errors.New("the curator answered a heartbeat without saying how long it counts")
		}
		if err != nil {
			if ctx.Err() == nil {
				s.missedBeat(err)
				s.felt(beatPulse, began, err)
			}
			return err
		}
		ttl = time.Duration(response.GetTtlSeconds()) * time.Second
		s.beating.Set(beating{last: began, ttl: ttl})
		s.felt(beatPulse, began, nil)
		made()
		next := time.NewTimer(time.Until(began.Add(ttl / beatsPerTTL)))
		select {
		case <-ctx.Done():
			next.Stop()
			return ctx.Err()
		case <-next.C:
		}
	}
}

// beatTimeout is how long a heartbeat may take: as long as the next is due, if there is nobody else who could be told.
func (s *session) beatTimeout(ttl time.Duration) time.Duration {
	timeout := max(ttl/beatsPerTTL, minBeatTimeout)
	if s.others.Load() {
		timeout = min(timeout, maxBeatTimeout)
	}
	return timeout
}

func (s *session) missedBeat(err error) {
	problem := explain(err)
	s.beating.Update(func(before beating) beating {
		if before.problem == "" {
			before.failing = time.Now()
		}
		before.problem = problem
		return before
	})
}
