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
		noted   uint64 // as certainly damaged, before
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
		"one more is away":      {members: three, hashes: map[uint64]uint32{1: 7, 3: 8}, noted: 3, certain: []uint64{3}},
		"a majority takes back": {members: three, hashes: map[uint64]uint32{1: 8, 2: 7, 3: 7}, noted: 3, certain: []uint64{1}},
		"another one, too":      {members: append(slices.Clone(three), voter(4)), hashes: map[uint64]uint32{1: 7, 2: 9, 3: 8}, noted: 3, certain: []uint64{3}, doubted: []uint64{1, 2}},
		"a learner decides not": {members: append(slices.Clone(two), learner), hashes: map[uint64]uint32{1: 7, 2: 8, 4: 7}, doubted: []uint64{1, 2, 4}},
	} {
		var want []string
		for _, id := range test.certain {
			want = append(want, peers.DamagedKey(id, true))
		}
		for _, id := range test.doubted {
			want = append(want, peers.DamagedKey(id, false))
		}
		before := map[string]string{peers.DamagedKey(test.noted, true): "run `reeve store replace reeve-3`"}
		found := judge(test.members, test.hashes, before)
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

// TestDamageIsNotedOnceItWasSeenTwice notes what two looks have found, keeps it while the member does not answer, and takes it back when it is like the others, or the only one.
func TestDamageIsNotedOnceItWasSeenTwice(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	members := []store.Peer{{ID: 1, Node: "reeve-1"}, {ID: 2, Node: "reeve-2"}, {ID: 3, Node: "reeve-3"}}
	h := &hashing{Store: s}
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
		left    int // how many members there are
	}{
		{"well", map[uint64]uint32{1: 7, 2: 7, 3: 7}, false, nil, 3},
		{"once", map[uint64]uint32{1: 7, 2: 8, 3: 7}, true, nil, 3},
		{"it was nothing", map[uint64]uint32{1: 7, 2: 7, 3: 7}, false, nil, 3},
		{"once more", map[uint64]uint32{1: 7, 2: 8, 3: 7}, true, nil, 3},
		{"another one", map[uint64]uint32{1: 7, 2: 7, 3: 8}, true, nil, 3},
		{"that one twice", map[uint64]uint32{1: 7, 2: 7, 3: 9}, false, []string{peers.DamagedKey(3, true)}, 3},
		{"it is away", map[uint64]uint32{1: 7, 2: 7}, false, []string{peers.DamagedKey(3, true)}, 3},
		{"nobody answers", map[uint64]uint32{1: 7}, false, []string{peers.DamagedKey(3, true)}, 3},
		{"like the others", map[uint64]uint32{1: 7, 2: 7, 3: 7}, true, []string{peers.DamagedKey(3, true)}, 3},
		{"twice", map[uint64]uint32{1: 7, 2: 7, 3: 7}, false, nil, 3},
		{"one differs", map[uint64]uint32{1: 7, 2: 7, 3: 8}, true, nil, 3},
		{"its majority is busy", map[uint64]uint32{}, false, nil, 3},
		{"it still does", map[uint64]uint32{1: 7, 2: 7, 3: 8}, false, []string{peers.DamagedKey(3, true)}, 3},
		{"a good one is away", map[uint64]uint32{1: 7, 3: 8}, false, []string{peers.DamagedKey(3, true)}, 3},
		{"it is replaced", map[uint64]uint32{1: 7, 2: 7}, true, []string{peers.DamagedKey(3, true)}, 2},
		{"it was", map[uint64]uint32{1: 7, 2: 7}, false, nil, 2},
		{"two differ", map[uint64]uint32{1: 7, 2: 8}, true, nil, 2},
		{"they still do", map[uint64]uint32{1: 7, 2: 8}, false, []string{peers.DamagedKey(1, false), peers.DamagedKey(2, false)}, 2},
		{"one is left", nil, true, []string{peers.DamagedKey(1, false), peers.DamagedKey(2, false)}, 1},
		{"it differs from nobody", nil, false, nil, 1},
	} {
		h.hashes, h.members = look.hashes, members[:look.left]
		again, _, err := c.round(storetest.Context(t))
		if err != nil || again != look.again || !slices.Equal(noted(), look.damaged) {
			t.Fatalf("%s: noted %v, to be looked at again %t, %v", look.what, noted(), again, err)
		}
	}
}
