package reconcile

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestJudge names who differs from a majority of the voters, and everybody where none says which data is right.
func TestJudge(t *testing.T) {
	voter := func(id uint64) store.Peer { return store.Peer{ID: id, Node: "reeve-" + string(rune('0'+id))} }
	learner := voter(4)
	learner.Learner = true
	two, three := []store.Peer{voter(1), voter(2)}, []store.Peer{voter(1), voter(2), voter(3)}
	for name, test := range map[string]struct {
		members []store.Peer
		hashes  map[uint64]uint32
		certain []uint64
		doubted []uint64
	}{
		"all alike":             {members: three, hashes: map[uint64]uint32{1: 7, 2: 7, 3: 7}},
		"nobody to compare":     {members: three, hashes: map[uint64]uint32{1: 7}},
		"one differs":           {members: three, hashes: map[uint64]uint32{1: 7, 2: 8, 3: 7}, certain: []uint64{2}},
		"the one who looks":     {members: three, hashes: map[uint64]uint32{1: 8, 2: 7, 3: 7}, certain: []uint64{1}},
		"two differ from third": {members: three, hashes: map[uint64]uint32{1: 7, 2: 8, 3: 9}, doubted: []uint64{1, 2, 3}},
		"two of a store of two": {members: two, hashes: map[uint64]uint32{1: 7, 2: 8}, doubted: []uint64{1, 2}},
		"the third is away":     {members: three, hashes: map[uint64]uint32{1: 7, 2: 8}, doubted: []uint64{1, 2}},
		"a learner differs":     {members: append(slices.Clone(three), learner), hashes: map[uint64]uint32{1: 7, 2: 7, 3: 7, 4: 8}, certain: []uint64{4}},
		"a learner decides not": {members: append(slices.Clone(two), learner), hashes: map[uint64]uint32{1: 7, 2: 8, 4: 7}, doubted: []uint64{1, 2, 4}},
	} {
		var want []string
		for _, id := range test.certain {
			want = append(want, peers.DamagedKey(id, true))
		}
		for _, id := range test.doubted {
			want = append(want, peers.DamagedKey(id, false))
		}
		found := judge(test.members, test.hashes)
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, found, want)
		}
		for key, reason := range found {
			if !strings.Contains(reason, "reeve store replace") {
				t.Errorf("%s: %s: %q names no way out", name, key, reason)
			}
		}
	}
}

// hashing is a store whose members are made up, with what is said that they hold.
type hashing struct {
	*store.Store
	members []store.Peer
	hashes  map[uint64]uint32
}

func (h *hashing) Peers() []store.Peer { return h.members }
func (h *hashing) Hashes(context.Context) (map[uint64]uint32, time.Duration, error) {
	return h.hashes, 0, nil
}

// TestDamageIsNotedOnceItWasSeenTwice notes what two looks have found, keeps it while the member does not answer, and takes it back when it is like the others, or gone.
func TestDamageIsNotedOnceItWasSeenTwice(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	h := &hashing{Store: s, members: []store.Peer{{ID: 1, Node: "reeve-1"}, {ID: 2, Node: "reeve-2"}, {ID: 3, Node: "reeve-3"}}}
	c := &Comparer{Log: hclog.NewNullLogger(), Store: h}
	noted := func() []string {
		t.Helper()
		answer, err := s.Server().KV().Range(t.Context(), []byte(peers.DamagedPrefix), []byte(peers.DamagedPrefix+"\xff"), mvcc.RangeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, found := range answer.KVs {
			keys = append(keys, string(found.Key))
		}
		return keys
	}
	for _, look := range []struct {
		what    string
		hashes  map[uint64]uint32
		again   bool
		damaged []string
	}{
		{"well", map[uint64]uint32{1: 7, 2: 7, 3: 7}, false, nil},
		{"once", map[uint64]uint32{1: 7, 2: 8, 3: 7}, true, nil},
		{"it was nothing", map[uint64]uint32{1: 7, 2: 7, 3: 7}, false, nil},
		{"once more", map[uint64]uint32{1: 7, 2: 8, 3: 7}, true, nil},
		{"another one", map[uint64]uint32{1: 7, 2: 7, 3: 8}, true, nil},
		{"that one twice", map[uint64]uint32{1: 7, 2: 7, 3: 9}, false, []string{peers.DamagedKey(3, true)}},
		{"it is away", map[uint64]uint32{1: 7, 2: 7}, false, []string{peers.DamagedKey(3, true)}},
		{"nobody answers", map[uint64]uint32{1: 7}, false, []string{peers.DamagedKey(3, true)}},
		{"like the others", map[uint64]uint32{1: 7, 2: 7, 3: 7}, true, []string{peers.DamagedKey(3, true)}},
		{"twice", map[uint64]uint32{1: 7, 2: 7, 3: 7}, false, nil},
	} {
		h.hashes = look.hashes
		again, _, err := c.round(storetest.Context(t))
		if err != nil || again != look.again || !slices.Equal(noted(), look.damaged) {
			t.Fatalf("%s: noted %v, to be looked at again %t, %v", look.what, noted(), again, err)
		}
	}
}
