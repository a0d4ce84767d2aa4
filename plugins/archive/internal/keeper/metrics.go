package keeper

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// mostAhead is how far the clock of the node that asked for a snapshot may have been ahead.
const mostAhead = 5 * time.Minute

// counts is what the metrics show of one place.
type counts struct {
	newest   time.Time
	copies   int
	failures uint64
}

// metrics is safe for concurrent use.
type metrics struct {
	mu     sync.Mutex
	places map[string]counts
}

// change changes what is shown of a kind of place.
func (m *metrics) change(kind string, change func(*counts)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places == nil {
		m.places = make(map[string]counts)
	}
	now := m.places[kind]
	change(&now)
	m.places[kind] = now
}

// WriteMetrics writes the metrics of the role in the text format of Prometheus.
func (k *Keeper) WriteMetrics(_ context.Context, to io.Writer) error {
	k.metrics.mu.Lock()
	defer k.metrics.mu.Unlock()
	now := k.now()
	for _, metric := range []struct {
		name, kind, help string
		value            func(counts) int64
	}{
		{"archive_newest_seconds", "gauge", "When the newest snapshot of which there is a copy was asked for, in seconds of the Unix epoch; 0: there is none, or the clock was wrong.", func(c counts) int64 {
			switch ahead := c.newest.Sub(now); {
			case c.newest.IsZero(), ahead > mostAhead: // whoever compares it with the time hears of it
				return 0
			case ahead > 0:
				return now.Unix()
			}
			return c.newest.Unix()
		}},
		{"archive_copies", "gauge", "Copies of snapshots of this node that there are.", func(c counts) int64 { return int64(c.copies) }},
		{"archive_failures_total", "counter", "Rounds in which not everything could be listed, copied or removed.", func(c counts) int64 { return int64(c.failures) }},
	} {
		if _, err := fmt.Fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", metric.name, metric.help, metric.name, metric.kind); err != nil {
			return err
		}
		for _, kind := range []string{ofDirectory, ofBucket} {
			if shown, ok := k.metrics.places[kind]; ok {
				if _, err := fmt.Fprintf(to, "%s{place=%q} %d\n", metric.name, kind, metric.value(shown)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
