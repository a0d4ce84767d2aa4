package usage

import (
	"context"
	"maps"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// Sum adds up the keys and values of every user, and the keys that are on each lease, at one revision, which must not be compacted meanwhile.
func Sum(ctx context.Context, kv mvcc.KV) (sums map[string]Total, attached map[int64]int64, revision int64, err error) {
	found, err := readPage(ctx, kv, usersPrefix, usersEnd, mvcc.RangeOptions{})
	if err != nil {
		return nil, nil, 0, err
	}
	sums, attached = make(map[string]Total), make(map[int64]int64)
	for _, kv := range found.KVs {
		if user := UserOf(kv.Key); user != nil {
			sums[string(user)] = sums[string(user)].plus(Total{Bytes: sizeOf(kv), Keys: 1})
			add(attached, kv.Lease, 1)
		}
	}
	return sums, attached, found.Rev, nil
}

// Paced is a Counter that only knows how fast users may write.
func Paced(pace Pace) *Counter {
	return &Counter{config: Config{Pace: pace}, accounts: make(map[string]*account), attaching: make(map[int64]int64)}
}

// Leased is a Counter that only knows the leases of ant, which may have so many.
func Leased(quotaOfAnt int64, list func() ([]int64, error)) *Counter {
	return &Counter{
		config:   Config{Leases: list, Numbers: func() map[string]uint32 { return nil }},
		accounts: make(map[string]*account), quotas: map[string]quota{"ant": {leases: quotaOfAnt}},
	}
}

// Stored is a Counter that only knows what is stored.
func Stored(kv mvcc.WatchableKV) *Counter {
	return &Counter{config: Config{KV: kv}, accounts: make(map[string]*account)}
}

// StoredPaced is one that also knows how fast users may write.
func StoredPaced(kv mvcc.WatchableKV, pace Pace) *Counter {
	c := Stored(kv)
	c.config.Pace = pace
	return c
}

// Written is what a request counts.
func Written(request any) int64 { return written(request) }

// HistoryOf is how much of some changes is history since a revision, each of so many bytes and at the revision after that of the one before.
func HistoryOf(changes int, bytes int64, since int64) int64 {
	var h history
	for n := range changes {
		h.add(&mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: int64(n + 1), Value: make([]byte, bytes-perRevision)}}, 128<<20)
	}
	return h.since(since)
}

// ChangesOf takes in a change of each of some keys, at a revision of its own, and returns before which revision history is old, and how many revisions etcd walks for the former values of a user since a
// revision. No change has any bytes to speak of.
func ChangesOf(user string, since int64, keys ...string) (old, walked int64) {
	c := Counter{config: Config{History: 128 << 20}}
	for _, key := range keys {
		c.revision++
		c.history.add(&mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: c.revision}}, c.config.History)
	}
	_, walked = c.HistorySince(user, since)
	return c.OldHistory(), walked
}

// Change takes in a change of a key.
func (c *Counter) Change(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config.History = 128 << 20
	c.revision++
	c.history.add(&mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: c.revision}}, c.config.History)
}

// Overwrites is what a request counts for keys that change very often.
func (c *Counter) Overwrites(user string, request any) int64 { return c.overwrites(user, request) }

// Passed is what a request that writes counts for the keys that etcd passes, if its user has so many.
func Passed(ctx context.Context, kv mvcc.WatchableKV, user string, keys int64, request any) (int64, error) {
	c := Stored(kv)
	c.account(user).stored.Keys = keys
	bytes, _, err := c.passed(ctx, user, request)
	return bytes, err
}

// PassedByDeletes is what a request counts for keys that were deleted before, if there are so many.
func PassedByDeletes(user string, deleted int64, request any) int64 {
	c := Stored(nil)
	c.account(user).deleted[0] = deleted
	return c.passedByDeletes(user, request)
}

// Attached is how many keys are counted on each lease.
func (c *Counter) Attached() map[int64]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.attached)
}

// Wait has a request that puts nothing on a lease wait.
func (c *Counter) Wait(ctx context.Context, user string, request any) error {
	_, err := c.wait(ctx, user, request, 0)
	return err
}

// Begin begins a request that weighs what it writes.
func (c *Counter) Begin(ctx context.Context, user string, request any) (func(), error) {
	return c.begin(ctx, user, written(request))
}

// Deleted counts what a request has deleted.
func (c *Counter) Deleted(user string, answer any) { c.deleted(user, answer) }

// Pretend counts keys on a lease that there are not.
func (c *Counter) Pretend(lease, keys int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attached == nil {
		c.attached = make(map[int64]int64)
	}
	c.attached[lease] += keys
}

// Weigh is what a request weighs.
func (c *Counter) Weigh(ctx context.Context, user string, request any) (int64, error) {
	_, checks, err := c.attach(ctx, user, request)
	if err != nil {
		return 0, err
	}
	return c.wait(ctx, user, request, checks)
}

// Weight is what a request weighs, if its user has so many keys.
func Weight(ctx context.Context, kv mvcc.WatchableKV, user string, keys int64, request any) (int64, error) {
	c := StoredPaced(kv, Pace{PerSecond: 1 << 20, AtOnce: 1 << 30})
	c.account(user).stored.Keys = keys
	return c.wait(ctx, user, request, 0)
}

// Walked is what a request counts for former revisions, if the store is at a present one.
func Walked(present int64, user string, request any) int64 {
	c := Stored(nil)
	c.revision = present
	return c.walked(user, request)
}

// Growth is how much more a user has after a request, and what it then owes.
func (c *Counter) Growth(ctx context.Context, user string, request any) (growth Total, owed int64, err error) {
	_, limiter := c.paceOf(user)
	before := limiter.Tokens()
	growth, err = c.growth(ctx, user, request)
	return growth, int64(before - limiter.Tokens()), err
}

// At has the store at a revision.
func (c *Counter) At(revision int64) { c.revision = revision }
