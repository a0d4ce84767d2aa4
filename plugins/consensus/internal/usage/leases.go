package usage

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
)

// leases are those that each number has. etcd tells nobody of leases that run out, nor of those that other members grant, so they are listed when somebody wants one, but not again
// as long as countShare bids. What was let in or given back here since then is known by its ID: to list all of them for each would have one user occupy the store by granting
// and revoking.
type leases struct {
	mu   sync.Mutex
	held map[uint32]map[int64]struct{} // nil: not listed yet
	at   time.Time                     // when
	took time.Duration                 // how long
	// granted are those that were let in and that etcd has not answered yet, by ID.
	granted map[int64]*granted
}

type granted struct{ number uint32 }

// countShare bounds the part of the time that goes into listing leases, however many there are and however often they are asked for: one part of so many. A list that took long, since
// the machine stood still, is not kept for minutes all the same: it lacks what other members grant, and has what ran out.
const (
	countShare = 20
	mostListed = time.Second
)

// count lists the leases if the last list is old; l.mu is held.
func (l *leases) count(list func() ([]int64, error)) error {
	began := time.Now()
	if l.held != nil && began.Sub(l.at) < min(countShare*l.took, mostListed) {
		return nil
	}
	ids, err := list()
	if err != nil {
		return err
	}
	l.held = make(map[uint32]map[int64]struct{})
	for _, id := range ids {
		l.hold(id)
	}
	l.at, l.took = time.Now(), time.Since(began)
	return nil
}

// hold takes note of a lease that there is; l.mu is held.
func (l *leases) hold(id int64) {
	number := numbers.OfLease(id)
	if l.held[number] == nil {
		l.held[number] = make(map[int64]struct{})
	}
	l.held[number][id] = struct{}{}
}

// of is how many a number has, with those that are under way; l.mu is held.
func (l *leases) of(number uint32) int64 {
	count := int64(len(l.held[number]))
	for id, g := range l.granted {
		if _, there := l.held[number][id]; g.number == number && !there {
			count++
		}
	}
	return count
}

// admitLease lets a lease in, whose ID says whose it is.
func (c *Counter) admitLease(user string, id int64) (Settle, error) {
	c.mu.Lock()
	a, quota := c.account(user), c.quota(user).leases
	c.mu.Unlock()
	g, err := c.leases.reserve(id, quota, c.config.Leases)
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "consensus: count the leases of the user %s: %v", user, err)
	case g == nil:
		return nil, c.refuse(user, a, func(e *OverQuotaError) { e.Leases = 1 })
	}
	return func(_ any, err error) {
		switch {
		case err == nil:
			c.leases.answered(id, g)
		case hadNoEffect(err):
			c.leases.release(id, g)
		default:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.later(func() { c.leases.release(id, g) })
		}
	}, nil
}

// reserve returns nil if there are as many as may be.
func (l *leases) reserve(id, quota int64, list func() ([]int64, error)) (*granted, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.count(list); err != nil {
		return nil, err
	}
	g := &granted{number: numbers.OfLease(id)}
	if l.granted[id] != nil {
		return g, nil // at most one of them succeeds
	}
	if l.of(g.number)+1 > quota {
		return nil, nil
	}
	if l.granted == nil {
		l.granted = make(map[int64]*granted)
	}
	l.granted[id] = g
	return g, nil
}

// answered takes note of a lease that etcd has granted.
func (l *leases) answered(id int64, g *granted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold(id)
	if l.granted[id] == g {
		delete(l.granted, id)
	}
}

func (l *leases) release(id int64, g *granted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.granted[id] == g {
		delete(l.granted, id)
	}
}

const (
	// perBeat is what it counts that a lease is kept alive or told of, which is 4,096 of them a second: each takes 10 microseconds of a processor, and 40 to 100 where it is a request to the leader. A role with 1,000 leases
	// of 10 s keeps each alive three times in that time, which counts 5 MiB a second.
	perBeat = int64(16 << 10)
	// perBeatKey is what each key of the lease counts, too: etcd checks the user's permission for all of them, a microsecond for each.
	perBeatKey = int64(512)
)

// Beat is what it counts for the pace of what is read that a lease is kept alive or told of with its keys; 0: one that is told of without them.
func (c *Counter) Beat(lease int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return perBeat + perBeatKey*c.attached[lease]
}

// Revoked says that a user has given a lease back: it may have another at once.
func (c *Counter) Revoked(id int64) {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	delete(c.leases.held[numbers.OfLease(id)], id)
}

// Leases are those of a number, sorted.
func (c *Counter) Leases(number uint32) ([]int64, error) {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	if err := c.leases.count(c.config.Leases); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(c.leases.held[number])), nil
}

// leasesOf returns how many leases each user has.
func (c *Counter) leasesOf() (map[string]int64, error) {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	if err := c.leases.count(c.config.Leases); err != nil {
		return nil, err
	}
	users := make(map[string]int64)
	for user, number := range c.config.Numbers() {
		users[user] = c.leases.of(number)
	}
	return users, nil
}
