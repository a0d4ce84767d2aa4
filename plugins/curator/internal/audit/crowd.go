package audit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// allowance is how many calls are written of a caller: so many at once, and then one in that time.
type allowance struct {
	burst int
	every time.Duration
}

// crowds holds the calls that have no entry of their own, by caller. So a caller that calls all the time cannot push its earlier entries out of a shelf.
type crowds struct {
	now  func() time.Time
	some chan struct{} // tells Run that there are some; holds one

	mu      sync.Mutex
	callers map[caller]*budget
}

// caller is who shares a budget, which is one for each shelf. All callers who proved nothing are one caller.
type caller struct {
	name  string
	shelf store.AuditShelf
}

// kind is what several calls of a caller have in common, so that one entry stands for them. It is empty for callers who proved nothing. from is the network that the calls came
// from; empty: any.
type kind struct{ rpc, code, from string }

// budget is what may be written of a caller.
type budget struct {
	limiter *rate.Limiter
	crowds  map[kind]*crowd
}

// crowd holds the calls of one kind of one caller.
type crowd struct {
	limiter *rate.Limiter         // beyond the budget: a kind with few calls keeps its entries beside one with many
	newest  *clusterv1.AuditEntry // stands for all that are left out; nil: there are none
	others  uint64                // beside the newest
}

// maxNetworks bounds how many networks of one caller are told apart. A caller may have any number of them.
const maxNetworks = 64

// maxCallers is how many budgets are kept before unused ones are dropped.
const maxCallers = 1024

// admit reports whether an entry is written. One that is stands for those that were left out before it; one that is not is left out.
func (c *crowds) admit(by caller, bound allowance, of kind, entry *clusterv1.AuditEntry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	budget := c.budget(by, bound, now)
	known := budget.crowd(of)
	if budget.allow(known, now) {
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

// giveBack has an entry that take returned, and that could not be written, be left out again.
func (c *crowds) giveBack(by caller, bound allowance, of kind, entry *clusterv1.AuditEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.budget(by, bound, c.now()).crowd(of)
	if known.others += entry.GetSuppressed(); known.newest != nil {
		known.others++ // there is a newer one
		return
	}
	known.newest = entry
}

// crowd returns that of a kind.
func (b *budget) crowd(of kind) *crowd {
	if len(b.crowds) >= maxNetworks && b.crowds[of] == nil {
		of.from = ""
	}
	known := b.crowds[of]
	if known == nil {
		known = &crowd{limiter: rate.NewLimiter(rate.Every(kindEvery), 1)}
		if of == (kind{}) {
			known.limiter = rate.NewLimiter(0, 0)
		}
		b.crowds[of] = known
	}
	return known
}

// budget returns that of a caller.
func (c *crowds) budget(by caller, bound allowance, now time.Time) *budget {
	if known := c.callers[by]; known != nil {
		return known
	}
	if len(c.callers) >= maxCallers {
		for other, known := range c.callers {
			if known.asNew(now) {
				delete(c.callers, other)
			}
		}
	}
	c.callers[by] = &budget{limiter: rate.NewLimiter(rate.Every(bound.every), bound.burst), crowds: make(map[kind]*crowd)}
	return c.callers[by]
}

// allow takes one more entry of a kind from what may be written.
func (b *budget) allow(of *crowd, now time.Time) bool {
	return b.limiter.AllowN(now, 1) || of.limiter.AllowN(now, 1)
}

// asNew reports whether a budget is as one that was just made.
func (b *budget) asNew(now time.Time) bool {
	for _, of := range b.crowds {
		if of.newest != nil || of.limiter.TokensAt(now) < float64(of.limiter.Burst()) {
			return false
		}
	}
	return b.limiter.TokensAt(now) >= float64(b.limiter.Burst())
}

// take returns an entry for each kind of calls that has been left out and of which one more may be written, or, if all is true, for each; and whether others are left. Each says how many
// there were besides.
func (c *crowds) take(all bool) (entries []*clusterv1.AuditEntry, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for _, budget := range c.callers {
		for _, of := range budget.crowds {
			if of.newest == nil {
				continue
			}
			if !all && !budget.allow(of, now) {
				left = true
				continue
			}
			of.newest.Suppressed = of.others
			entries = append(entries, of.newest)
			of.newest, of.others = nil, 0
		}
	}
	return entries, left
}
