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
	// DefaultTTL is how long the winner of an election may be silent before another instance may win. It survives a restart of the store's member on
	// the winner's node, which takes a second or two.
	DefaultTTL = 10 * time.Second
	// resignTime bounds the cleanup at the end of a term. If it fails, the lease ends by itself.
	resignTime = time.Second
	// firstAgain is the first pause before a failed candidacy is repeated, lastAgain the longest.
	firstAgain = 100 * time.Millisecond
	lastAgain  = 2 * time.Second
)

// ErrTermOver is, by errors.Is, the cause (context.Cause) of the end of a Term's context if the term was lost or resigned. Its text says which.
var ErrTermOver = errors.New("the term is over")

// Election is an election among a role's instances, for work that only one of them may do at a time. The candidates have the same ConsensusUser and
// clients with the same prefix.
type Election struct {
	client *Client
	name   string
	ttl    time.Duration
}

// ElectionOption is an option of an election.
type ElectionOption func(*Election)

// WithTTL sets how long the winner may be silent before another instance may win, in whole seconds, rounded up; the default is DefaultTTL. A short
// TTL means a quick successor, but also terms that end because the machine is busy.
func WithTTL(ttl time.Duration) ElectionOption {
	return func(e *Election) { e.ttl = max(time.Second, (ttl + time.Second - 1).Truncate(time.Second)) }
}

// NewElection returns the election of that name. Its keys are below name and a slash, which should hold nothing else. It panics if name is empty or
// contains a slash, because that is a programming error.
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

// Campaign waits until this instance has won the election. Candidates win in the order in which they came. It keeps waiting while the store is away;
// it fails when ctx is done, or with an error that waiting does not fix, such as ErrOverQuota. The term ends with ctx at the latest.
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

// mends reports whether an error is worth a retry.
func mends(err error) bool {
	// The lease ended before the election was won, or the store compacted the history that the candidate watched.
	if errors.Is(err, ErrTermOver) || errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrCompacted) {
		return true
	}
	var refused rpctypes.EtcdError
	if errors.As(err, &refused) {
		err = status.Error(refused.Code(), refused.Error())
	}
	return !errors.Is(err, ErrOverQuota) && passing(err)
}

// stand makes one candidacy with its own lease.
func (e *Election) stand(ctx context.Context) (*Term, error) {
	term := &Term{election: e.name, of: e.client}
	term.ctx, term.end = context.WithCancelCause(ctx)
	// The library cleans up with its client's context, however long that takes. This context ends soon after the term.
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
		term.over("the store did not grant a lease", err)
		return nil, err
	}
	term.session, term.client = session, client
	standing := concurrency.NewElection(session, e.name)
	if err = standing.Campaign(term.ctx, ""); err == nil {
		term.key, term.revision = standing.Key(), standing.Rev()
		// The library does not notice that the candidate's own key was deleted while it waited for others.
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

// Term is the time for which an instance holds an election. Always call Resign, even when the term is over.
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

// Context ends with the term: after Resign, when somebody deletes its key or revokes its lease, when the client is closed, when Campaign's context is
// done, or when the store did not answer for the election's TTL, counted here from before the store counts it. So another instance's term begins
// after this context has ended, unless this process was not scheduled. Fence protects writes to the store even then.
func (t *Term) Context() context.Context { return t.ctx }

// Fence is a comparison for every transaction of the term: it is true as long as the term lasts, and never again. It is for transactions of the
// election's Client; in those of its Subs it is never true.
func (t *Term) Fence() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.revision)
}

// Resign ends the term, so that other instances need not wait for the end of the lease. It takes a second at most, and may be called more than once.
func (t *Term) Resign() {
	t.once.Do(func() {
		t.over("it was resigned", nil)
		t.session.Orphan()
		t.watching.Wait()
		ctx, cancel := context.WithTimeout(t.of.Ctx(), resignTime)
		defer cancel()
		// Revoking the lease deletes the key.
		_, _ = t.of.Revoke(ctx, t.session.Lease())
	})
}

// over ends the term if it has not ended.
func (t *Term) over(why string, err error) {
	if err != nil {
		t.end(fmt.Errorf("consensus: the election %q: %w: %s: %w", t.election, ErrTermOver, why, err))
		return
	}
	t.end(fmt.Errorf("consensus: the election %q: %w: %s", t.election, ErrTermOver, why))
}

// holds returns a revision at which the term's key existed. If it does not exist, it ends the term.
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

// watch ends the term when its key is deleted. The keeper of the lease would notice only later.
func (t *Term) watch(since int64) {
	for {
		for response := range t.client.Watch(t.ctx, t.key, clientv3.WithRev(since+1)) {
			for _, event := range response.Events {
				if event.Type == mvccpb.Event_DELETE {
					t.over("its key was deleted", nil)
					return
				}
			}
		}
		// The history was compacted while the store was away, for instance.
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
