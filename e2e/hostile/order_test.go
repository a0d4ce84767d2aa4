package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// result is what a role says of an order.
type result struct {
	Attempt string
	Unknown bool
	Tries   []try
	Values  map[string]string
}

// try is one thing that a role tried.
type try struct {
	What, Answer string
	Through      bool
}

// errEnded says that the role ended before it could tell.
var errEnded = errors.New("the role ended meanwhile")

// order has a role perform an attempt and waits for its result.
func (s *scene) order(t *testing.T, role, attempt string, arguments map[string]string, timeout time.Duration) (result, error) {
	t.Helper()
	got, err := s.exchange(role, attempt, s.pidOf(role), arguments, timeout)
	if got.Unknown {
		t.Fatalf("the plugin does not know the attempt %s", attempt)
	}
	return got, err
}

// exchange writes an order and waits for its result, or for the end of the process.
func (s *scene) exchange(role, attempt string, pid int, arguments map[string]string, timeout time.Duration) (got result, err error) {
	directory := s.cluster.Path("data", "roles", role)
	name := fmt.Sprintf("%s-%d", attempt, s.orders.Add(1))
	document, err := json.Marshal(map[string]any{"Attempt": attempt, "Arguments": arguments})
	if err != nil {
		return got, err
	}
	deadline := time.Now().Add(timeout)
	if end, ok := s.ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	for {
		temporary := filepath.Join(directory, "orders", "."+name)
		if err = os.WriteFile(temporary, document, 0o644); err == nil {
			err = os.Rename(temporary, filepath.Join(directory, "orders", name))
		}
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return got, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	for {
		path := filepath.Join(directory, "results", name)
		if content, err := os.ReadFile(path); err == nil && json.Unmarshal(content, &got) == nil {
			return got, os.Remove(path)
		}
		if pid != 0 {
			if p, err := procfs.Read(pid); err != nil || p.Ended() {
				_ = os.Remove(filepath.Join(directory, "orders", name))
				return got, errEnded
			}
		}
		if time.Now().After(deadline) {
			return got, fmt.Errorf("no result within %s", timeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// orderQuietly is order with the usual arguments none, for goroutines beside the test's own.
func (s *scene) orderQuietly(role, attempt string, timeout time.Duration) (result, error) {
	return s.exchange(role, attempt, s.pidOf(role), nil, timeout)
}
