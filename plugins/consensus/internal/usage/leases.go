package usage

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// leases is how many there are of each number. etcd tells nobody of leases that come and go, so they are counted when somebody wants one, but not again
// as long as countShare bids.
type leases struct {
	mu      sync.Mutex
	counted map[uint32]int64
	at      time.Time     // when
	took    time.Duration // how long
	// since is what was granted and given back here since then, underway what was let in and is not answered.
	since, underway map[uint32]int64
}

// countShare bounds the part of the time that goes into counting leases, however many there are and however often they are asked for: one part of so many.
const countShare = 20

// count counts the leases if the last count is old; l.mu is held.
func (l *leases) count(leases func() (map[uint32]int64, error)) error {
	began := time.Now()
	if l.counted != nil && began.Sub(l.at) < countShare*l.took {
		return nil
	}
	counted, err := leases()
	if err != nil {
		return err
	}
	l.counted, l.at, l.took = counted, time.Now(), time.Since(began)
	l.since = make(map[uint32]int64)
	if l.underway == nil {
		l.underway = make(map[uint32]int64)
	}
	return nil
}

func (l *leases) of(number uint32) int64 { return l.counted[number] + l.since[number] }

func (c *Counter) admitLease(user string, number uint32) (Settle, error) {
	if user == c.config.ClusterUser {
		return nothing, nil
	}
	c.mu.Lock()
	a, quota := c.account(user), c.quota(user).leases
	c.mu.Unlock()
	fits, err := c.reserveLease(number, quota)
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "consensus: count the leases of the user %s: %v", user, err)
	case !fits:
		return nil, c.refuse(user, a, func(e *OverQuotaError) { e.Leases = 1 })
	}
	return func(_ any, err error) {
		done := func(granted int64) {
			c.leases.mu.Lock()
			defer c.leases.mu.Unlock()
			c.leases.underway[number]--
			c.leases.since[number] += granted
		}
		switch {
		case err == nil:
			done(1)
		case hadNoEffect(err):
			done(0)
		default:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.later(func() { done(0) })
		}
	}, nil
}

func (c *Counter) reserveLease(number uint32, quota int64) (bool, error) {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	if err := c.leases.count(c.config.Leases); err != nil {
		return false, err
	}
	if c.leases.of(number)+c.leases.underway[number]+1 > quota {
		return false, nil
	}
	c.leases.underway[number]++
	return true, nil
}

// Revoked takes note of a lease that its user has given back: it may have another at once.
func (c *Counter) Revoked(number uint32) {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	if c.leases.counted != nil {
		c.leases.since[number]--
	}
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
