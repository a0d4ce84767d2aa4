package users

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/reeveproject/reeve/core/storage"
)

// Counters numbers the instances of each role. A number is on disk before it is used and is never used again, so that what is left of
// an earlier instance can never be taken for a later one's. While the volume takes nothing, because it is full, numbers are kept in the run
// directory, which lasts as long as anything that may be left of an instance: roles that end are started again on a full volume too.
type Counters struct {
	path, spare string

	mu   sync.Mutex
	last map[string]uint64
}

type countersFile struct {
	Version int               `json:"version"`
	Last    map[string]uint64 `json:"last"`
}

// OpenCounters reads the numbers that are in a file, and in one that is written where the first cannot be.
func OpenCounters(path, spare string) (*Counters, error) {
	c := &Counters{path: path, spare: spare, last: make(map[string]uint64)}
	for _, path := range []string{path, spare} {
		_ = storage.RemoveDrafts(path)
		var file countersFile
		if err := storage.ReadJSON(path, formatVersion, &file); err != nil {
			return nil, fmt.Errorf("counters of instances: %w", err)
		}
		for role, last := range file.Last {
			c.last[role] = max(c.last[role], last)
		}
	}
	return c, nil
}

// Next returns the next number of a role.
func (c *Counters) Next(role string) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[role]++
	file := countersFile{Version: formatVersion, Last: c.last}
	if err := storage.WriteJSON(c.path, file, 0o600); err != nil {
		if !isFull(err) || storage.WriteJSON(c.spare, file, 0o600) != nil {
			return 0, fmt.Errorf("counters of instances: %w", err)
		}
	}
	return c.last[role], nil
}

// isFull reports whether a volume takes nothing: it is full, or read-only after an error, or does not work.
func isFull(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO}, func(number syscall.Errno) bool { return errors.Is(err, number) })
}
