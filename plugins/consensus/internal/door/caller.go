package door

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
)

// callers are the users that have called, by name: as many as there are grants.
type callers struct {
	clusterUser         string
	patience, readBound time.Duration

	mu    sync.Mutex
	known map[string]*caller
}

func newCallers(clusterUser string, patience, readBound time.Duration) *callers {
	return &callers{clusterUser: clusterUser, patience: patience, readBound: readBound, known: make(map[string]*caller)}
}

// of returns whose call a context is of; nil: one that is not bounded.
func (c *callers) of(ctx context.Context) *caller {
	user := store.UserOf(ctx)
	if user == "" || user == c.clusterUser {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known[user]
	if known == nil {
		known = newCaller(user, c.patience, c.readBound)
		c.known[user] = known
	}
	return known
}

// caller is what a user has under way, over all of its connections.
type caller struct {
	user                string
	patience, readBound time.Duration
	// reading and writing hold one for each call that is carried out. Writes wait for their user's pace, and for a quorum; no read waits behind them.
	reading, writing chan struct{}
	pace             *rate.Limiter // of what is read
	beats            *rate.Limiter // of leases that are kept alive, and asked for
	line             chan struct{} // holds the one that waits for room for a large answer; other large ones wait for it
	paying           chan struct{} // holds the one that waits until it may owe more, before it is carried out

	mu                      sync.Mutex
	calls, streams, watches int
	watched                 map[span]int  // how many watches there are of some keys
	answers                 int64         // bytes that are not sent yet, or are about to be read
	freed                   chan struct{} // closed when there are less; nil: nobody waits
	// past is how much history is owed for the watches since pastAt: etcd reads it for all of them together.
	past   int64
	pastAt time.Time
	// sends are the answers of streams that are being sent. Each is closed when gRPC has taken it.
	sends map[chan struct{}]struct{}
}

func newCaller(user string, patience, readBound time.Duration) *caller {
	return &caller{
		user: user, patience: patience, readBound: readBound,
		reading: make(chan struct{}, maxTurns), writing: make(chan struct{}, maxTurns), line: make(chan struct{}, 1), paying: make(chan struct{}, 1),
		pace:  rate.NewLimiter(rate.Limit(readPace), int(maxAnswers)),
		beats: rate.NewLimiter(rate.Limit(readPace), int(maxAnswers)),
		sends: make(map[chan struct{}]struct{}), watched: make(map[span]int),
	}
}

// begin counts a call in. refused says why it is not carried out; flood says that there are more of these, too, than are answered.
func (c *caller) begin(stream bool) (refused error, flood bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if stream {
		c.streams++
	}
	switch {
	case c.calls > maxCalls:
		refused = errExceeded(c.user, "has %d calls under way, which is the most: wait for some of them to end", maxCalls)
	case stream && c.streams > maxWatchStreams:
		refused = errExceeded(c.user, "has %d streams of watches and leases open, which is the most: put several watches on one", maxWatchStreams)
	}
	return refused, c.calls > maxCalls+maxRefused
}

// end counts it out.
func (c *caller) end(stream bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	if stream {
		c.streams--
	}
}

// paced waits until what the user has read before is paid for. How much a call reads is known afterwards, so it owes that then: two seconds at most.
func (c *caller) paced(ctx context.Context) error {
	if c.pace.Tokens() >= 0 || c.pace.WaitN(ctx, 1) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return errFast(c.user)
}

// inLine is paced for those that know how much they cost: it has those behind it wait until that is owed, and leave is called. Of many that only wait for the pace, all would go on at once.
func (c *caller) inLine(ctx context.Context) (leave func(), err error) {
	select {
	case c.paying <- struct{}{}:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	leave = func() { <-c.paying }
	if err := c.paced(ctx); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// pays waits until what is to be done is paid for. Beats of leases have a pace of their own: who reads as much as it may keeps its leases all the same.
func (c *caller) pays(ctx context.Context, pace *rate.Limiter, bytes int64) error {
	if pace.WaitN(ctx, int(min(bytes, maxAnswers))) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return errFast(c.user)
}

// owes has the user owe what it has read.
func (c *caller) owes(bytes int64) { c.pace.ReserveN(time.Now(), int(min(bytes, maxAnswers))) }

// pastInterval is how often etcd reads history for watches from the past.
const pastInterval = 100 * time.Millisecond

// owesPast has the user owe the history that etcd reads for a watch, unless it reads it anyway.
func (c *caller) owesPast(bytes int64) {
	c.mu.Lock()
	if now := time.Now(); now.Sub(c.pastAt) >= pastInterval {
		c.past, c.pastAt = 0, now
	}
	more := max(0, bytes-c.past)
	c.past += more
	c.mu.Unlock()
	c.owes(more)
}

// tryReserve makes room for an answer if there is some right now, and none is in line that has to wait for it.
func (c *caller) tryReserve(bytes int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers+bytes > maxAnswers || bytes > largeAnswer && len(c.line) > 0 {
		return false
	}
	c.answers += bytes
	return true
}

// reserve waits for room for an answer for as long as the user has patience. Large ones wait in line: each needs much at once, which it would never find beside others that go on
// taking a part of it. Small ones pass them, since who waits for one client to read must not have all others wait.
func (c *caller) reserve(ctx context.Context, bytes int64) error {
	waiting, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	if bytes > largeAnswer {
		select {
		case c.line <- struct{}{}:
			defer func() { <-c.line }()
		case <-waiting.Done():
		}
	}
	err := waiting.Err()
	if err == nil {
		err = c.await(waiting, bytes)
	}
	if err != nil && ctx.Err() == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return errUnread(c.user, c.answers)
	}
	return err
}

// await waits until there is room for an answer.
func (c *caller) await(ctx context.Context, bytes int64) error {
	for {
		c.mu.Lock()
		if c.answers+bytes <= maxAnswers {
			c.answers += bytes
			c.mu.Unlock()
			return nil
		}
		if c.freed == nil {
			c.freed = make(chan struct{})
		}
		freed := c.freed
		c.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle has an answer take what it really has, in the place of what was reserved for it.
func (c *caller) settle(reserved, used int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers += used - reserved
	if used < reserved && c.freed != nil {
		close(c.freed)
		c.freed = nil
	}
}

// release gives back room.
func (c *caller) release(bytes int64) { c.settle(bytes, 0) }

// beginSend counts in an answer of a stream, until end is called.
func (c *caller) beginSend() (end func()) {
	sent := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sends[sent] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.sends, sent)
		close(sent)
	}
}

// awaitSends waits for the answers of streams that are being sent now.
func (c *caller) awaitSends(ctx context.Context) error {
	c.mu.Lock()
	sends := slices.Collect(maps.Keys(c.sends))
	c.mu.Unlock()
	for _, sent := range sends {
		select {
		case <-sent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// address is that of a peer, by which the connection is found on which a call came.
type address struct {
	of *connection
}

func (address) Network() string  { return "unix" }
func (a address) String() string { return a.of.UnixConn.RemoteAddr().String() }

// connectionOf returns the connection on which a call came.
func connectionOf(ctx context.Context) *connection {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	at, ok := from.Addr.(address)
	if !ok {
		return nil
	}
	return at.of
}
