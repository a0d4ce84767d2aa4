package consensus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/status"
)

const (
	// DefaultTTL is after what time without a word from the instance that holds an election another one may win it. A restart of the store's member on the
	// instance's node, which takes a second or two, costs nobody a term.
	DefaultTTL = 10 * time.Second
	// resignTime bounds what an instance does for the others when its term is over. What it cannot tell the store, the end of the lease does.
	resignTime = time.Second
	// firstAgain is the wait before an election is stood for again that could not be, and lastAgain the longest one.
	firstAgain = 100 * time.Millisecond
	lastAgain  = 2 * time.Second
)

// ErrTermOver is the cause (context.Cause) with which the context of a Term ends that was lost or resigned, by errors.Is. Its text says which.
var ErrTermOver = errors.New("the term is over")

// Election is held among the instances of a role, for what only one of them is to do at a time. Those that stand for it have the same ConsensusUser, and clients with the
// same prefix.
type Election struct {
	client *Client
	name   string
	ttl    time.Duration
}

// ElectionOption changes what an election does by default.
type ElectionOption func(*Election)

// WithTTL sets after what time without a word from the instance that holds the election another one may win it: whole seconds, rounded up; DefaultTTL unless this says
// otherwise. A short one means a quick successor, and terms that end because of a busy machine.
func WithTTL(ttl time.Duration) ElectionOption {
	return func(e *Election) { e.ttl = max(time.Second, (ttl + time.Second - 1).Truncate(time.Second)) }
}

// NewElection returns the election of a name. Its keys are those below name and a slash, which should hold nothing else. It panics if name is empty or has a slash,
// which would be a mistake in the program.
func NewElection(client *Client, name string, options ...ElectionOption) *Election {
	if name == "" || strings.Contains(name, "/") {
		panic(fmt.Sprintf("consensus: NewElection(%q): want a name without a slash", name))
	}
	e := &Election{client: client, name: name, ttl: DefaultTTL}
	for _, option := range options {
		option(e)
	}
	return e
}

// Campaign waits until this instance has won the election: those that stand for it win in the order in which they came. While the store is away it goes on waiting; it
// fails when ctx is done, or with what waiting does not mend, such as ErrOverQuota. The term too ends with ctx at the latest.
func (e *Election) Campaign(ctx context.Context) (*Term, error) {
	for again := firstAgain; ; again = min(2*again, lastAgain) {
		term, err := e.stand(ctx)
		switch {
		case err == nil:
			return term, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("consensus: the election %q was not won: %w", e.name, context.Cause(ctx))
		case e.client.Ctx().Err() != nil || !mends(err):
			return nil, fmt.Errorf("consensus: the election %q: %w", e.name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// mends reports whether an error is worth another attempt.
func mends(err error) bool {
	// The lease ended before the election was won, or the store forgot the history in which the candidate waited for an event.
	if errors.Is(err, ErrTermOver) || errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrCompacted) {
		return true
	}
	var refused rpctypes.EtcdError
	if errors.As(err, &refused) {
		err = status.Error(refused.Code(), refused.Error())
	}
	return !errors.Is(err, ErrOverQuota) && passing(err)
}

// stand stands for the election once, with a lease of its own.
func (e *Election) stand(ctx context.Context) (*Term, error) {
	term := &Term{election: e.name, of: e.client}
	term.ctx, term.end = context.WithCancelCause(ctx)
	// The library cleans up after itself with the context of its client, for however long that takes. This one's ends soon after the term.
	lifetime, endLifetime := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(e.client.Ctx(), func() {
		term.over("the client was closed", nil)
		endLifetime()
	})
	context.AfterFunc(term.ctx, func() {
		unhook()
		time.AfterFunc(resignTime, endLifetime)
	})
	client := clientv3.NewCtxClient(lifetime)
	client.KV, client.Watcher = e.client.KV, e.client.Watcher
	client.Lease = &keeper{Lease: e.client.Lease, remote: e.client.LeaseClient(), ended: term.over}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(e.ttl/time.Second)), concurrency.WithContext(term.ctx))
	if err != nil {
		term.over("the store gave no lease", err)
		return nil, err
	}
	term.session, term.client = session, client
	standing := concurrency.NewElection(session, e.name)
	if err = standing.Campaign(term.ctx, ""); err == nil {
		term.key, term.revision = standing.Key(), standing.Rev()
		// The library does not notice that the candidate's own key has gone while it waited for others to go.
		var since int64
		if since, err = term.holds(); err == nil {
			term.watching.Go(func() { term.watch(since) })
			return term, nil
		}
	}
	if term.ctx.Err() != nil {
		err = context.Cause(term.ctx)
	}
	term.Resign()
	return nil, err
}

// Term is the time for which an instance holds an election. It should be resigned from, also when it is over.
type Term struct {
	election string
	ctx      context.Context
	end      context.CancelCauseFunc
	of       *Client
	client   *clientv3.Client
	session  *concurrency.Session
	key      string
	revision int64
	watching sync.WaitGroup
	once     sync.Once
}

// Context ends when the term does: it was resigned, somebody took its key or its lease away, the client was closed, the context of Campaign was done, or the store was not heard of for
// the election's TTL, counted here from before the store counts it. So another instance's term begins after this context has ended, as long as this process is
// given the processor. What is written to the store is safe without that, by Fence.
func (t *Term) Context() context.Context { return t.ctx }

// Fence is what every transaction should compare that is made because of the term: it is true in the store as long as the term lasts, and never again.
// It is for transactions of the Client that the election was made with; in those of its Subs it is never true.
func (t *Term) Fence() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.revision)
}

// Resign ends the term, so that another instance need not wait for the end of the lease. It takes a second at most, and may be called more than once.
func (t *Term) Resign() {
	t.once.Do(func() {
		t.over("it was resigned", nil)
		t.session.Orphan()
		t.watching.Wait()
		ctx, cancel := context.WithTimeout(t.of.Ctx(), resignTime)
		defer cancel()
		// With the lease goes the key.
		_, _ = t.of.Revoke(ctx, t.session.Lease())
	})
}

// over ends the term, unless it has ended.
func (t *Term) over(why string, err error) {
	if err != nil {
		t.end(fmt.Errorf("consensus: the election %q: %w: %s: %w", t.election, ErrTermOver, why, err))
		return
	}
	t.end(fmt.Errorf("consensus: the election %q: %w: %s", t.election, ErrTermOver, why))
}

// holds returns a revision of the store at which the term's key was there. If it was not, the term is over.
func (t *Term) holds() (int64, error) {
	found, err := t.client.Get(t.ctx, t.key)
	if err != nil {
		return 0, err
	}
	if len(found.Kvs) != 1 || found.Kvs[0].CreateRevision != t.revision {
		t.over("its key is not in the store any more", nil)
		return 0, context.Cause(t.ctx)
	}
	return found.Header.GetRevision(), nil
}

// watch ends the term when its key goes. The keeper of the lease would find that out too, later.
func (t *Term) watch(since int64) {
	for {
		for response := range t.client.Watch(t.ctx, t.key, clientv3.WithRev(since+1)) {
			for _, event := range response.Events {
				if event.Type == mvccpb.Event_DELETE {
					t.over("its key was taken out of the store", nil)
					return
				}
			}
		}
		// The history was compacted, say, while the store was away.
		for again := true; again; {
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(firstAgain):
			}
			revision, err := t.holds()
			since, again = revision, err != nil
		}
	}
}
