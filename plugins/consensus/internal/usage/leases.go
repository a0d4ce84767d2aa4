package usage

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
)

// leases is how many there are of each number. etcd tells nobody of leases that come and go, so they are counted when somebody wants one, but not again
// as long as countShare bids. What was let in since then is known by its ID.
type leases struct {
	mu      sync.Mutex
	counted map[uint32]int64
	at      time.Time     // when
	took    time.Duration // how long
	// granted are those that were let in and may not be among the counted yet, by ID; extra is how many of each number are not.
	granted map[int64]*granted
	extra   map[uint32]int64
}

type granted struct {
	number uint32
	// answered is whether etcd has granted it, present whether it is among the counted.
	answered, present bool
}

// countShare bounds the part of the time that goes into counting leases, however many there are and however often they are asked for: one part of so many.
const countShare = 20

// count counts the leases if the last count is old; l.mu is held.
func (l *leases) count(list func() ([]int64, error)) error {
	began := time.Now()
	if l.counted != nil && began.Sub(l.at) < countShare*l.took {
		return nil
	}
	ids, err := list()
	if err != nil {
		return err
	}
	l.counted, l.extra = make(map[uint32]int64), make(map[uint32]int64)
	for _, id := range ids {
		l.counted[numbers.OfLease(id)]++
		if g := l.granted[id]; g != nil {
			g.present = true
		}
	}
	for id, g := range l.granted {
		switch {
		case g.answered:
			delete(l.granted, id) // it was there when it was answered: it is counted, or it has ended
		case !g.present:
			l.extra[g.number]++
		}
	}
	l.at, l.took = time.Now(), time.Since(began)
	return nil
}

func (l *leases) of(number uint32) int64 { return l.counted[number] + l.extra[number] }

// admitLease lets a lease in, whose ID says whose it is.
func (c *Counter) admitLease(user string, id int64) (Settle, error) {
	if user == c.config.ClusterUser {
		return nothing, nil
	}
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
			c.leases.mu.Lock()
			defer c.leases.mu.Unlock()
			g.answered = true
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
	l.extra[g.number]++
	return g, nil
}

func (l *leases) release(id int64, g *granted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.granted[id] != g {
		return
	}
	delete(l.granted, id)
	if !g.present {
		l.extra[g.number]--
	}
}

// Revoked says that a user has given a lease back: it may have another at once.
func (c *Counter) Revoked() {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	c.leases.at = time.Time{}
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
