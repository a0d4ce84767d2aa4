package cluster

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	beats := &beats{api: s.api}
	defer beats.close()
	watched := 0
	for {
		if err := s.awaitStore(ctx); err != nil {
			return err
		}
		began := time.Now()
		// A watch that has come back may be of a curator that was upgraded.
		if reached, _ := s.streams.Get(); reached != watched {
			watched, beats.older = reached, false
		}
		response, err := beats.send(ctx, s.beatTimeout(ttl))
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(began.Add(ttl / beatsPerTTL))):
		}
	}
}

// beats sends heartbeats to a curator on one stream, which begins with the first; or by calls, to an older curator that does not know of it.
type beats struct {
	api    clusterv1.NodeServiceClient
	stream grpc.BidiStreamingClient[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse] // nil: the next heartbeat begins one
	end    context.CancelCauseFunc                                                           // ends the stream
	older  bool
}

// close ends the stream, if there is one.
func (b *beats) close() {
	if b.end != nil {
		b.end(nil)
	}
	b.stream, b.end = nil, nil
}

// send sends a heartbeat. None is to be sent after one that failed. ctx is that of all of them.
func (b *beats) send(ctx context.Context, timeout time.Duration) (response interface{ GetTtlSeconds() uint32 }, err error) {
	if !b.older {
		response, err = b.sendOnStream(ctx, timeout)
		b.older = status.Code(err) == codes.Unimplemented
	}
	if b.older {
		b.close()
		call, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		response, err = b.api.Heartbeat(call, &clusterv1.HeartbeatRequest{})
	}
	return response, err
}

// sendOnStream sends a heartbeat on the stream, or on another one if that has ended since the heartbeat before: a curator ends each connection when it has a certain age, and
// no heartbeat fails by that.
func (b *beats) sendOnStream(ctx context.Context, timeout time.Duration) (response *clusterv1.KeepAliveResponse, err error) {
	if b.stream != nil {
		if response, sent, err := b.try(ctx, timeout); sent {
			return response, err
		}
		b.close()
	}
	response, _, err = b.try(ctx, timeout)
	return response, err
}

// try sends a heartbeat on the stream, which it begins if there is none. sent is false if the stream had ended.
func (b *beats) try(ctx context.Context, timeout time.Duration) (response *clusterv1.KeepAliveResponse, sent bool, err error) {
	var streaming context.Context
	if b.stream == nil {
		streaming, b.end = context.WithCancelCause(ctx)
	}
	end := b.end
	late := time.AfterFunc(timeout, func() { end(context.DeadlineExceeded) })
	defer func() {
		if late.Stop() {
			return
		}
		if err != nil {
			err = status.FromContextError(context.DeadlineExceeded).Err()
		}
		b.stream = nil // it is ended, though the answer may just have come
	}()
	if b.stream == nil {
		if b.stream, err = b.api.KeepAlive(streaming); err != nil {
			return nil, false, err
		}
	}
	if err = b.stream.Send(&clusterv1.KeepAliveRequest{}); err != nil && !errors.Is(err, io.EOF) { // of which Recv says why
		return nil, true, err
	}
	sent = err == nil
	response, err = b.stream.Recv()
	if errors.Is(err, io.EOF) {
		err = errors.New("the curator ended the stream of heartbeats")
	}
	return response, sent, err
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
