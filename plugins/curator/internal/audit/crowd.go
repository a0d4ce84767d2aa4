package audit

import (
	"sync"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// crowd is the calls of callers who proved nothing that are left out for now.
type crowd struct {
	some chan struct{} // tells Run that there are some; holds one

	mu     sync.Mutex
	newest *clusterv1.AuditEntry // stands for all of them; nil: there are none
	others uint64                // beside the newest
}

// add leaves a call out.
func (c *crowd) add(entry *clusterv1.AuditEntry) {
	c.mu.Lock()
	if c.newest != nil {
		c.others++
	}
	c.newest = entry
	c.mu.Unlock()
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// join has an entry that is written stand for those that were left out.
func (c *crowd) join(entry *clusterv1.AuditEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest != nil {
		entry.Suppressed = c.others + 1
		c.newest, c.others = nil, 0
	}
}

// take returns the newest of those that were left out, which says how many there were besides; nil: none.
func (c *crowd) take() *clusterv1.AuditEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.newest
	if entry != nil {
		entry.Suppressed = c.others
	}
	c.newest, c.others = nil, 0
	return entry
}
