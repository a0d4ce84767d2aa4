package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// resignWithin is how long a curator that stops takes to say so to the others, who otherwise wait for the end of its lease.
const resignWithin = time.Second

// ErrFenced says that the term is over in which a write was decided. Another curator has won the election since, or the lease of the term has ended: what was to
// be written is for whoever wins next.
var ErrFenced = errors.New("another curator has taken over")

// Fence is the key that an election was won by. It goes with the lease of the term: a write that it fences is made only while the key is there, and is refused from
// then on, whether or not another curator has won already.
type Fence struct {
	key     string
	created int64
}

func (f *Fence) compare() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(f.key), "=", f.created)
}

func (f *Fence) stands(kvs []*mvccpb.KeyValue) bool {
	return len(kvs) == 1 && kvs[0].CreateRevision == f.created
}

// Term is the time for which a curator has won the election of those that do what only one of them should.
type Term struct {
	fence    *Fence
	session  *concurrency.Session
	election *concurrency.Election
	end      context.CancelFunc
	once     sync.Once
}

// Campaign waits until this curator has won the election. Whoever holds it and is not heard of for ttl, in whole seconds, loses it. The term has to be resigned
// from.
func (s *Store) Campaign(ctx context.Context, curator string, ttl time.Duration) (*Term, error) {
	// The library cleans up after itself with the context of its client, for however long that takes. This one's ends soon after ctx.
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	ending := context.AfterFunc(ctx, func() { time.AfterFunc(resignWithin, end) })
	client := clientv3.NewCtxClient(lifetime)
	client.KV, client.Watcher, client.Lease = s.client.KV, s.client.Watcher, s.client.Lease
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl/time.Second)))
	if err != nil {
		ending()
		end()
		return nil, s.failed(ctx, "stand for election", err)
	}
	term := &Term{session: session, election: concurrency.NewElection(session, keyElection), end: func() { ending(); end() }}
	campaign, cancel := context.WithCancel(ctx)
	defer cancel()
	// A lease that ends while its holder waits takes the key of the election with it.
	defer context.AfterFunc(session.Ctx(), cancel)()
	checkpoint.Before(steps.Campaign)
	if err := term.election.Campaign(campaign, curator); err != nil {
		term.Resign()
		if ctx.Err() == nil && campaign.Err() != nil {
			err = errors.New("the lease of the election ended")
		}
		return nil, s.failed(ctx, "win the election", err)
	}
	checkpoint.After(steps.Campaign)
	term.fence = &Fence{key: term.election.Key(), created: term.election.Rev()}
	return term, nil
}

// Fence is for UpdateFenced, the writes that only this term may make. It does not say that the term still stands: only the store knows that, when it writes.
func (t *Term) Fence() *Fence { return t.fence }

// Over is done when the term is over, as far as this curator knows: another one may know it sooner.
func (t *Term) Over() context.Context { return t.session.Ctx() }

// Resign ends the term, so that another curator need not wait for the end of the lease.
func (t *Term) Resign() {
	t.once.Do(func() {
		t.session.Orphan()
		bounded, cancel := context.WithTimeout(t.session.Client().Ctx(), resignWithin)
		defer cancel()
		// With the lease goes the key. If that fails it ends by itself.
		_, _ = t.session.Client().Revoke(bounded, t.session.Lease())
		t.end()
	})
}

// UpdateFenced makes a write like Update, if the fence still stands in the transaction that makes it. The error is ErrFenced if it does not.
func (s *Store) UpdateFenced(ctx context.Context, call Call, fence *Fence, decide func(*State) (*Change, error)) (*State, error) {
	if fence == nil {
		return nil, fmt.Errorf("write without having won the election: %w", ErrFenced)
	}
	return s.update(ctx, call, fence, decide)
}
