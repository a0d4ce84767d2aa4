package cluster_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/inorder"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
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

// TestStoreThatWasBegunTwice holds that two survivors that became two stores are told of as such, and that a node which starts waits for its own.
func TestStoreThatWasBegunTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation.json")
	withCurators(t, 2, func(t *testing.T, m *many) {
		first, other := m.addresses[0], m.addresses[1]
		_ = m.following(t, path)
		m.ofGeneration(first, 9, 1, "one")
		end := m.run()
		m.at(first, "1")
		end()
		m.down[first]()
		m.ofGeneration(other, 9, 1, "other")
		offered, _ := m.curators[other].view.Get()
		offered.StoreRecovered = true // nobody watches yet

		told := m.following(t, path)
		defer m.run()()
		m.reason(func(reason string) bool { return strings.Contains(reason, "begun again twice") })
		time.Sleep(5 * time.Second) // of the bubble's clock
		m.up(first)
		m.at(first, "2")
		if list := told.list(); len(list) != 1 || list[0].Curator != other || !strings.Contains(list[0].Refused, "keep one") {
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
		view := await(t, m.client.View(), func(v *cluster.View) bool { return v.Revision == 9 })
		if view.Directory.GetStoreGeneration() != 1 || string(view.Directory.GetStoreGenerationId()) != "restored" {
			t.Errorf("roles are told %v", view.Directory)
		}
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
			return strings.Contains(reason, "generation 0") && strings.Contains(reason, "follows generation 72657374 (begun 1970-01-01T00:00:01Z)")
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

// TestTombstoneOfAnotherStore holds that the word of a store that the node does not follow does not erase it, as long as a view of that store would not be taken either.
func TestTombstoneOfAnotherStore(t *testing.T) {
	tombstone := func(number *uint64, id string) func(t *testing.T, m *many) error {
		return func(t *testing.T, m *many) error {
			return refusalOf(t, codes.PermissionDenied, &clusterv1.NodeRemoved{NodeId: nodeID(m.key), StoreGeneration: number, StoreGenerationId: []byte(id)})
		}
	}
	for name, test := range inorder.Of(map[string]struct {
		refusal func(t *testing.T, m *many) error
		alive   bool // a curator of the store that the node follows
		removed bool
	}{
		"its own":                     {tombstone(new(uint64(5)), "own"), false, true},
		"of a curator of before":      {tombstone(nil, ""), false, true},
		"an earlier one":              {tombstone(new(uint64(0)), ""), false, false},
		"a later one":                 {tombstone(new(uint64(6)), "later"), true, false},
		"a later one and nobody else": {tombstone(new(uint64(6)), "later"), false, true},
	}) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "generation.json")
			withCurators(t, 2, func(t *testing.T, m *many) {
				own, other := m.addresses[0], m.addresses[1]
				m.ofGeneration(own, 9, 5, "own")
				m.ofGeneration(other, 9, 5, "own")
				told := m.following(t, path)
				defer m.run()()
				await(t, m.client.View(), func(v *cluster.View) bool { return v.Revision == 9 })
				refusal := test.refusal(t, m)
				m.curators[other].set(func(r *rules) { r.refuse = refusal })
				m.down[own]()
				if test.alive {
					time.Sleep(10 * time.Second) // of the bubble's clock
					m.up(own)
				}
				time.Sleep(5 * time.Minute) // as well
				synctest.Wait()
				if removed, _ := m.client.Removed().Get(); (removed != nil) != test.removed {
					t.Errorf("it is %+v", removed)
				}
				if list := told.list(); !test.removed && (len(list) == 0 || list[0].Refused == "") {
					t.Errorf("told %+v", list)
				}
			})
		})
	}
}

// TestAnotherStoreIsNotServed holds that the curator of a store that the node refuses hears no heartbeat, and is asked for no SVID of node or role, until the node follows that store.
func TestAnotherStoreIsNotServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation.json")
	withCurators(t, 2, func(t *testing.T, m *many) {
		first, other := m.addresses[0], m.addresses[1]
		_ = m.following(t, path)
		end := m.run()
		m.at(first, "1")
		end()
		m.down[first]()
		m.ofGeneration(other, 9, 1, "restored")
		m.identity.Set(m.ca.node(m.key, m.ca.svid(m.key, 100*time.Hour, -time.Second)))
		_ = m.following(t, path)
		defer m.run()()
		m.reason(func(reason string) bool { return strings.Contains(reason, "a majority may be alive") })
		heard := func() int { return m.curators[other].count("Heartbeat") + m.curators[other].count("IssueSVID") }
		before := heard() // before the watch had said which store it is
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if _, _, err := m.client.IssueRoleSVID(ctx, "lighthouse", []byte("request")); err == nil || !strings.Contains(err.Error(), "a majority may be alive") {
			t.Errorf("the SVID of a role: %v", err)
		}
		if now, asked := heard(), m.curators[other].count("IssueRoleSVID"); now != before || asked != 0 {
			t.Errorf("it has heard %d calls of the node after the first %d, and was asked for %d SVIDs of roles", now-before, before, asked)
		}
		// The SVID has ended, and the watch is taken all the same.
		m.at(other, "2")
		await(t, &m.curators[other].calls, func([]call) bool { return m.curators[other].count("IssueSVID") > 0 })
	})
}
