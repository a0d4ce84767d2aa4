package cluster_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/cluster"
)

// changes keeps what was told of other stores.
type changes struct {
	mu   sync.Mutex
	told []cluster.StoreChange
}

func (c *changes) add(change cluster.StoreChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, change)
}

func (c *changes) list() []cluster.StoreChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]cluster.StoreChange(nil), c.told...)
}

// ofGeneration has the curator at an address serve another store.
func (m *many) ofGeneration(address string, revision, number uint64, id string) {
	response := m.directory(revision, m.addresses...)
	response.Node.Generation = 7 // as before: it is the store that is another one
	response.StoreGeneration, response.StoreGenerationId = number, []byte(id)
	m.curators[address].view.Set(response)
}

// following has the node keep what it follows in a file, and tell of changes.
func (m *many) following(t *testing.T, path string) *changes {
	t.Helper()
	c := new(changes)
	m.again(func(config *cluster.Config) { config.Generation, config.StoreChanged = path, c.add })
	return c
}

// TestAnotherStoreIsRefusedWhileOwnAnswers holds that a restored store takes nobody away from a store that is alive.
func TestAnotherStoreIsRefusedWhileOwnAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation.json")
	withCurators(t, 3, func(t *testing.T, m *many) {
		first, other, last := m.addresses[0], m.addresses[1], m.addresses[2]
		told := m.following(t, path)
		defer m.run()()
		m.at(first, "1")
		m.ofGeneration(other, 9, 1, "restored")
		views := m.client.View().Watch()
		_, _ = views.Latest()
		m.down[first]()
		m.at(last, "2")
		select {
		case <-views.Changed():
			view, _ := views.Latest()
			t.Errorf("the view has changed: %+v", view)
		default:
		}
		if list := told.list(); len(list) != 1 || !strings.Contains(list[0].Refused, "a majority may be alive") || list[0].Curator != other || list[0].Offered.Number != 1 {
			t.Errorf("told %+v", list)
		}
	})
}

// TestAnotherStoreIsFollowed holds that a node comes to the restored store when nobody of its own answers any more, and that no start of it goes back.
func TestAnotherStoreIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation.json")
	withCurators(t, 2, func(t *testing.T, m *many) {
		first, other := m.addresses[0], m.addresses[1]
		told := m.following(t, path)
		end := m.run()
		m.at(first, "1")
		m.ofGeneration(other, 9, 1, "restored")
		m.down[first]()
		await(t, m.client.View(), func(v *cluster.View) bool { return v.Revision == 9 })
		m.at(other, "2")
		if list := told.list(); len(list) != 2 || list[0].Refused == "" || list[1].Refused != "" || list[1].Before.Number != 0 || list[1].Offered.Number != 1 {
			t.Errorf("told %+v", list)
		}
		end()

		// The former store is back, and has a majority.
		m.up(first)
		m.down[other]()
		told = m.following(t, path)
		end = m.run()
		m.reason(func(reason string) bool {
			return strings.Contains(reason, "generation 0") && strings.Contains(reason, "follows generation 1")
		})
		time.Sleep(10 * time.Minute) // of the bubble's clock
		if view, ok := m.client.View().Get(); ok {
			t.Errorf("the node has gone back: %+v", view)
		}
		if list := told.list(); len(list) != 1 || list[0].Offered.Number != 0 || list[0].Refused == "" {
			t.Errorf("told %+v", list)
		}
		end()

		// One that was begun from the same data as the store that the node follows, as after a restore that was done twice, takes its place.
		m.ofGeneration(first, 11, 1, "again")
		m.following(t, path)
		defer m.run()()
		m.at(first, "3")
	})
}

// TestRecoveredStoreIsFollowedAtTheStart holds that a node which was away comes to a store that a survivor has begun before its own former store, whose majority may come back with it, is alive.
func TestRecoveredStoreIsFollowedAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation.json")
	withCurators(t, 2, func(t *testing.T, m *many) {
		first, other := m.addresses[0], m.addresses[1]
		_ = m.following(t, path)
		end := m.run()
		m.at(first, "1")
		end()
		m.down[first]()
		m.ofGeneration(other, 9, 1, "recovered")
		offered, _ := m.curators[other].view.Get()
		offered.StoreRecovered = true // nobody watches yet

		told := m.following(t, path)
		defer m.run()()
		began := time.Now()
		await(t, m.client.View(), func(v *cluster.View) bool { return v.Revision == 9 })
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it was followed after %s", took)
		}
		if list := told.list(); len(list) == 0 || list[len(list)-1].Refused != "" || list[len(list)-1].Offered.Number != 1 {
			t.Errorf("told %+v", list)
		}
	})
}
