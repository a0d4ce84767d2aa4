package usage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what a Counter needs.
type Config struct {
	Log hclog.Logger
	// KV is what the local member has stored.
	KV mvcc.WatchableKV
	// ClusterUser is not bounded: its document says what the others may have.
	ClusterUser string
	// Numbers are those of all users. The map is not changed.
	Numbers func() map[string]uint32
	// Leases are the IDs of all leases.
	Leases func() ([]int64, error)
	// LateBound is how long after an answer that leaves it open a request may still take effect.
	LateBound time.Duration
	// Pace is how fast each user may write, but the cluster user; zero: as fast as it can.
	Pace Pace
	// History is how many bytes of history are to be kept at most.
	History int64
}

// Counter counts. Open makes it; Run keeps it.
type Counter struct {
	config   Config
	document string // the key of the cluster API's document
	usage    event.Value[[]*consensusv1.UserUsage]
	leases   leases

	scanned pages // may be newer than revision; of the goroutine that follows the store

	mu       sync.Mutex
	revision int64 // of the store, to which the accounts are kept
	history  history
	accounts map[string]*account
	// attached is how many keys are on each lease, and attaching how many may come: of requests that were let in and are not counted yet.
	attached, attaching map[int64]int64
	quotas              map[string]quota
	answered            []reservation // until their revision is reached
	unsure              []late        // until their time has come
	freed               int64         // the revision up to which the store is compacted when the older deleted keys of all accounts are gone
	reached             chan struct{} // closed when another revision is reached; nil: nobody waits
}

// account is what is known of one user.
type account struct {
	stored Total
	// reserved is what was let in and may not be among the bytes yet.
	reserved int64
	refused  uint64
	deleted  [2]int64            // how many keys were, that may not be compacted: before the revision freed, and since then
	pace     *rate.Limiter       // nil: not needed yet
	line     chan struct{}       // holds the one that waits for pace; others wait for it
	underway *semaphore.Weighted // bytes of writes that were not answered
	// looking holds the one that looks how much a request reads, and sizing the one that looks how much more is stored after it, which may wait for the pace meanwhile; nil: nobody has looked yet.
	looking, sizing chan struct{}
}

type reservation struct {
	let      func() // lets go of it
	revision int64
}

// Open adds up what is stored, and reads what the users may have.
func Open(ctx context.Context, config Config) (*Counter, error) {
	c := &Counter{config: config, document: desired.Key(config.ClusterUser), accounts: make(map[string]*account), attaching: make(map[int64]int64)}
	if err := c.count(ctx); err != nil {
		return nil, err
	}
	c.publish()
	return c, nil
}

// Usage is what the users have: all that are granted, and those that still have something. Sorted by user, and never changed after it was published.
func (c *Counter) Usage() *event.Value[[]*consensusv1.UserUsage] { return &c.usage }

// Revision is that of the store to which the bytes are counted.
func (c *Counter) Revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

const (
	// publishInterval is how often Usage is looked at.
	publishInterval = time.Second
	// retryInterval is the pause after an attempt to count that failed.
	retryInterval = time.Second
)

// Run keeps the counts until ctx is done, and returns nil then.
func (c *Counter) Run(ctx context.Context) error {
	var following sync.WaitGroup
	following.Go(func() { c.keep(ctx) })
	defer following.Wait()
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			c.forgetLate(now)
			c.forgetDeleted(c.config.KV.FirstRev())
			c.publish()
		}
	}
}

// keep follows the store, and counts anew whenever it could not.
func (c *Counter) keep(ctx context.Context) {
	for {
		err := c.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		c.config.Log.Info("counting anew what the users have in the store", "cause", err)
		for err = c.count(ctx); err != nil; err = c.count(ctx) {
			if ctx.Err() != nil {
				return
			}
			c.config.Log.Warn("what the users have in the store could not be counted; going on with what was known", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryInterval):
			}
		}
	}
}

// count adds everything up. It begins anew if it has looked too late at what was written meanwhile.
func (c *Counter) count(ctx context.Context) error {
	for {
		err := c.scan(ctx)
		if ctx.Err() != nil || !errors.Is(err, errGone) && !errors.Is(err, mvcc.ErrCompacted) {
			return err
		}
	}
}

// errGone says that the history from which to go on is gone.
var errGone = errors.New("the history of the store was compacted before it was looked at")

// watch has all changes of the store told from a revision on; 0: from now on.
func (c *Counter) watch(ctx context.Context, revision int64) (mvcc.WatchStream, error) {
	stream := c.config.KV.NewWatchStream()
	// All keys, since only so every revision is seen to have been reached.
	if _, err := stream.Watch(ctx, 0, []byte{0}, []byte{}, revision); err != nil {
		stream.Close()
		return nil, fmt.Errorf("follow the store: %w", err)
	}
	return stream, nil
}

// follow keeps the accounts up to date, until ctx is done or the history that it needs is gone.
func (c *Counter) follow(ctx context.Context) error {
	stream, err := c.watch(ctx, c.Revision()+1)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case change, ok := <-stream.Chan():
			if err := c.take(ctx, change, ok); err != nil {
				return err
			}
		}
	}
}

// take adds changes of the store to the accounts. A revision is never split.
func (c *Counter) take(ctx context.Context, change mvcc.WatchResponse, ok bool) error {
	var few [4]delta
	deltas, err := c.deltas(ctx, few[:0], change, ok, c.scanned)
	if err != nil || len(change.Events) == 0 {
		return err
	}
	revision := change.Events[len(change.Events)-1].Kv.ModRevision
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range deltas {
		a := c.account(d.user)
		a.stored = a.stored.plus(d.stored)
		d.attach(c.attached)
	}
	if revision >= c.scanned.last() {
		c.scanned = nil
	}
	c.reach(revision)
	return nil
}

// delta is what a change makes of what a user has.
type delta struct {
	user          string
	stored        Total
	former, lease int64 // the leases that the key was on, and is on
}

func (d delta) attach(attached map[int64]int64) {
	add(attached, d.former, -1)
	add(attached, d.lease, 1)
}

// deltas appends those of changes that are not among what was scanned, and takes note of what all of them are for history.
func (c *Counter) deltas(ctx context.Context, all []delta, change mvcc.WatchResponse, ok bool, scanned pages) ([]delta, error) {
	if !ok || change.CompactRevision != 0 {
		return nil, errGone
	}
	before := reader{kv: c.config.KV}
	defer before.end()
	for _, change := range change.Events {
		key := change.Kv.Key
		user := UserOf(key)
		if user == nil {
			continue
		}
		if change.Type == mvccpb.Event_PUT && string(key) == c.document {
			c.takeDocument(change.Kv.Value)
		}
		if scanned.have(key, change.Kv.ModRevision) {
			continue
		}
		d := delta{user: string(user)}
		if change.Type == mvccpb.Event_PUT {
			d.stored, d.lease = Total{Bytes: sizeOf(change.Kv), Keys: 1}, change.Kv.Lease
		}
		if change.Type == mvccpb.Event_DELETE || change.Kv.Version > 1 {
			former, err := before.get(ctx, key, change.Kv.ModRevision-1)
			if err != nil {
				return nil, err
			}
			d.stored, d.former = d.stored.plus(Total{Bytes: -sizeOf(former), Keys: -1}), former.GetLease()
		}
		all = append(all, d)
	}
	before.end() // writers wait for it
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range change.Events {
		c.history.add(change, c.config.History)
		if user := UserOf(change.Kv.Key); user != nil && change.Type == mvccpb.Event_DELETE {
			c.account(string(user)).deleted[1]++
		}
	}
	return all, nil
}

// catchUp waits until all that is stored by now is counted.
func (c *Counter) catchUp(ctx context.Context) error {
	present := c.config.KV.Rev()
	for {
		c.mu.Lock()
		if c.revision >= present {
			c.mu.Unlock()
			return nil
		}
		if c.reached == nil {
			c.reached = make(chan struct{})
		}
		reached := c.reached
		c.mu.Unlock()
		select {
		case <-reached:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// gone is how many keys were deleted that etcd may pass all the same, until it has compacted them; c.mu is held.
func (a *account) gone() int64 { return a.deleted[0] + a.deleted[1] }

// forgetDeleted forgets the keys of which the store has compacted that they were deleted.
func (c *Counter) forgetDeleted(compacted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if compacted < c.freed {
		return
	}
	c.freed = c.revision
	for _, a := range c.accounts {
		a.deleted = [2]int64{a.deleted[1], 0}
	}
}

// account returns that of a user; c.mu is held.
func (c *Counter) account(user string) *account {
	a := c.accounts[user]
	if a == nil {
		a = &account{}
		c.accounts[user] = a
	}
	return a
}

// reach takes note of how far the accounts are kept, and lets go of what is among them now; c.mu is held.
func (c *Counter) reach(revision int64) {
	c.revision = revision
	if c.reached != nil {
		close(c.reached)
		c.reached = nil
	}
	kept := c.answered[:0]
	for _, r := range c.answered {
		if r.revision > revision {
			kept = append(kept, r)
			continue
		}
		r.let()
	}
	clear(c.answered[len(kept):])
	c.answered = kept
}
