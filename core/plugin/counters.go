package plugin

import (
	"fmt"
	"sync"
)

// counters numbers the instances of each role. A number is on disk before it is used and is never used again, so that what is left of
// an earlier instance can never be taken for a later one's.
type counters struct {
	path string

	mu   sync.Mutex
	last map[string]uint64
}

type countersFile struct {
	versioned
	Last map[string]uint64 `json:"last"`
}

func openCounters(path string) (*counters, error) {
	removeInterrupted(path)
	file := countersFile{Last: make(map[string]uint64)}
	if _, err := readJSON(path, &file); err != nil {
		return nil, fmt.Errorf("counters of instances: %w", err)
	}
	if file.Last == nil {
		file.Last = make(map[string]uint64)
	}
	return &counters{path: path, last: file.Last}, nil
}

func (c *counters) next(role string) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[role]++
	if err := writeJSON(c.path, countersFile{versioned: versioned{formatVersion}, Last: c.last}, 0o600); err != nil {
		return 0, fmt.Errorf("counters of instances: %w", err)
	}
	return c.last[role], nil
}
