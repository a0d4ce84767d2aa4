package plugin

import (
	"fmt"
	"sync"

	"github.com/reeveproject/reeve/core/storage"
)

// counters numbers the instances of each role. A number is on disk before it is used and is never used again, so that what is left of
// an earlier instance can never be taken for a later one's. While the volume takes nothing, because it is full, numbers are kept in the run
// directory, which lasts as long as anything that may be left of an instance: roles that end are started again on a full volume too.
type counters struct {
	path, spare string

	mu   sync.Mutex
	last map[string]uint64
}

type countersFile struct {
	versioned
	Last map[string]uint64 `json:"last"`
}

func openCounters(path, spare string) (*counters, error) {
	c := &counters{path: path, spare: spare, last: make(map[string]uint64)}
	for _, path := range []string{path, spare} {
		_ = storage.RemoveDrafts(path)
		var file countersFile
		if _, err := readJSON(path, &file); err != nil {
			return nil, fmt.Errorf("counters of instances: %w", err)
		}
		for role, last := range file.Last {
			c.last[role] = max(c.last[role], last)
		}
	}
	return c, nil
}

func (c *counters) next(role string) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[role]++
	file := countersFile{versioned: versioned{formatVersion}, Last: c.last}
	if err := storage.WriteJSON(c.path, file, 0o600); err != nil {
		if !ofNode(err) || storage.WriteJSON(c.spare, file, 0o600) != nil {
			return 0, fmt.Errorf("counters of instances: %w", err)
		}
	}
	return c.last[role], nil
}
