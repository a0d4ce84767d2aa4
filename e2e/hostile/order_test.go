package hostile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
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
	name, err := s.place(role, attempt, arguments)
	if err != nil {
		return got, err
	}
	return s.await(role, name, pid, timeout)
}

// place writes an order, and returns its name. A role that has just been started makes the directory of its orders a moment later.
func (s *scene) place(role, attempt string, arguments map[string]string) (name string, err error) {
	directory := s.of(role, "orders")
	name = fmt.Sprintf("%s-%d", attempt, s.orders.Add(1))
	document, err := json.Marshal(map[string]any{"Attempt": attempt, "Arguments": arguments})
	if err != nil {
		return "", err
	}
	eventually.Try(s.ctx, patience, orderStep, func() (bool, string) {
		temporary := filepath.Join(directory, "."+name)
		if err = os.WriteFile(temporary, document, 0o644); err == nil {
			err = os.Rename(temporary, filepath.Join(directory, name))
		}
		return err == nil, ""
	})
	return name, err
}

// of is a path in the data directory of a role.
func (s *scene) of(role string, elements ...string) string {
	return filepath.Join(append([]string{cmp.Or(s.directory, s.cluster.Directory), "data", "roles", role}, elements...)...)
}

// awaitTaken waits until the role has begun with an order, or has ended.
func (s *scene) awaitTaken(role, name string, pid int) {
	eventually.Try(s.ctx, patience, orderStep, func() (bool, string) {
		_, err := os.Stat(s.of(role, "orders", name))
		return err != nil || ended(pid), ""
	})
}

// await waits for the result of an order, or for the end of the process.
func (s *scene) await(role, name string, pid int, timeout time.Duration) (got result, err error) {
	path := s.of(role, "results", name)
	err = fmt.Errorf("no result within %s", timeout)
	eventually.Try(s.ctx, timeout, orderStep, func() (bool, string) {
		// The role may end right after it has written its result.
		over := pid != 0 && ended(pid)
		if content, readErr := os.ReadFile(path); readErr == nil && json.Unmarshal(content, &got) == nil {
			err = os.Remove(path)
			return true, ""
		}
		if over {
			_ = os.Remove(s.of(role, "orders", name))
			err = errEnded
		}
		return over, ""
	})
	return got, err
}

// orderStep is the pause between two looks at an order.
const orderStep = 10 * time.Millisecond

func ended(pid int) bool {
	p, err := procfs.Read(pid)
	return err != nil || p.Ended()
}
