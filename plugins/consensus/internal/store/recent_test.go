package store_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestTheLogInMemoryIsBoundedByItsBytes writes large values while a member is away, which needs the whole database when it comes back, and while it takes that over: then etcd itself
// lets go of nothing for half a minute. The member catches up all the same.
func TestTheLogInMemoryIsBoundedByItsBytes(t *testing.T) {
	directory := storetest.Directory(t)
	config := storetest.Small(t, directory)
	config.Quota = 2 * store.MinQuota
	// The last 100 entries are never let go of, and less than the bound.
	const bound, size, writers = store.MinQuota / 2, 64 << 10, 8
	s, _ := storetest.OpenWith(t, config, storetest.Plan)
	third := storetest.Join(t, s, directory).Join("third")
	ctx := store.Root(storetest.Context(t))
	value := strings.Repeat("x", size)
	write := func(bytes int64) {
		t.Helper()
		for range bytes / size / writers {
			storetest.Eventually(t, "a write of each", func() bool {
				if status, _ := s.Status().Get(); status.Room != store.RoomForAll {
					return false
				}
				var failed atomic.Bool
				var writing sync.WaitGroup
				for n := range writers {
					writing.Go(func() {
						if _, err := s.Client().Put(ctx, fmt.Sprintf("/key/%d", n), value); err != nil { // an election, say
							failed.Store(true)
						}
					})
				}
				writing.Wait()
				return !failed.Load()
			})
		}
		storetest.Eventually(t, "a small log", func() bool { return s.RecentBytes() <= bound })
	}
	third.Stop()
	write(2 * bound)
	third.Start()
	write(3 * bound)
	storetest.Eventually(t, "the third member has caught up", func() bool { return third.Etcd().Server.AppliedIndex() >= s.Applied() })
}
