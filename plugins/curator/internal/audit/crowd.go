package audit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// allowance is how many calls of one kind are written of a caller: so many at once, and then one in that time.
type allowance struct {
	burst int
	every time.Duration
}

// crowds is the calls that are left out for now, by whose they are and of what kind. One that calls all the time cannot push out of a shelf what it did before.
type crowds struct {
	now  func() time.Time
	some chan struct{} // tells Run that there are some; holds one

	mu sync.Mutex
	by map[crowdOf]*crowd
}

// crowdOf is whose calls a crowd is made of: those of all callers who proved nothing are of nobody.
type crowdOf struct{ caller, kind string }

// crowd is the calls of one kind of one caller.
type crowd struct {
	limiter *rate.Limiter
	newest  *clusterv1.AuditEntry // stands for all that are left out; nil: there are none
	others  uint64                // beside the newest
}

// maxCrowds is how many crowds are kept before those are looked for that nobody would miss.
const maxCrowds = 1024

// admit reports whether an entry is written. One that is stands for those that were left out before it; one that is not is left out.
func (c *crowds) admit(of crowdOf, bound allowance, entry *clusterv1.AuditEntry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	known := c.by[of]
	if known == nil {
		if len(c.by) >= maxCrowds {
			c.forget(now)
		}
		known = &crowd{limiter: rate.NewLimiter(rate.Every(bound.every), bound.burst)}
		c.by[of] = known
	}
	if known.limiter.AllowN(now, 1) {
		if known.newest != nil {
			entry.Suppressed = known.others + 1
			known.newest, known.others = nil, 0
		}
		return true
	}
	if known.newest != nil {
		known.others++
	}
	known.newest = entry
	select {
	case c.some <- struct{}{}:
	default:
	}
	return false
}

// forget removes the crowds that are as new ones.
func (c *crowds) forget(now time.Time) {
	for of, known := range c.by {
		if known.newest == nil && known.limiter.TokensAt(now) >= float64(known.limiter.Burst()) {
			delete(c.by, of)
		}
	}
}

// take returns an entry for each crowd that has been left out and of which one more may be written, or, if all is true, for each; and whether others are left. Each says how many there
// were besides.
func (c *crowds) take(all bool) (entries []*clusterv1.AuditEntry, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.by {
		if known.newest == nil {
			continue
		}
		if !all && !known.limiter.AllowN(c.now(), 1) {
			left = true
			continue
		}
		known.newest.Suppressed = known.others
		entries = append(entries, known.newest)
		known.newest, known.others = nil, 0
	}
	return entries, left
}
