package usage

import (
	"cmp"
	"hash/maphash"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// perRevision is what a revision takes beside its key and value.
	perRevision = 256
	// mostSteps is how many revisions etcd may walk to find all former values of one user's keys in half of history, whatever its bytes. For each it walks all newer revisions of that key, 1.5 nanoseconds
	// for each. These are 10,000 changes of one key, or 100 of each of 10,000. Both halves together take 0.3 s; until the leader has compacted what is old, there are more.
	mostSteps = 10_000 * 10_001 / 2
	// mostChanges is how many changes of keys history may have, for the memory of their counts. Kubernetes with 100 nodes makes 200 a second, and reaches the bound of the bytes first.
	mostChanges = 200_000
	// fewOverwrites is how many changes a key may have in half of history until each one more counts for its puts.
	fewOverwrites = int64(1000)
)

// history is how the store's history has grown, whoever wrote it, since it was opened: two revisions with half of what is to be kept between them, and what was written since then.
type history struct {
	older, newer, written int64
	all                   int64 // what was written, and
	marks                 []mark
	changes               [2]changes // between the two revisions, and since then
}

// mark says how much was written before a revision. There is one for each perMark bytes.
type mark struct{ revision, all int64 }

const perMark = int64(64 << 10)

// changes are those of the keys of users.
type changes struct {
	count int64
	of    map[uint64]int64 // how many a key has, by its hash
	steps map[string]int64 // how many revisions etcd walks to find the former values of all keys of a user
}

var hashSeed = maphash.MakeSeed()

// add takes in a change, and returns the steps of the user whose key it is.
func (c *changes) add(key []byte) (steps int64) {
	c.count++
	user := UserOf(key)
	if user == nil {
		return 0
	}
	if c.of == nil {
		c.of, c.steps = make(map[uint64]int64), make(map[string]int64)
	}
	hash := maphash.Bytes(hashSeed, key)
	c.of[hash]++
	c.steps[string(user)] += c.of[hash]
	return c.steps[string(user)]
}

// add takes in one change.
func (h *history) add(change *mvccpb.Event, keep int64) {
	size := sizeOf(change.Kv) + perRevision
	if len(h.marks) == 0 || h.all-h.marks[len(h.marks)-1].all >= perMark {
		h.marks = append(h.marks, mark{change.Kv.ModRevision, h.all})
		if most := int(2*keep/perMark) + 1; len(h.marks) > most { // what is older is compacted
			h.marks = h.marks[1:]
		}
	}
	h.all += size
	h.written += size
	steps := h.changes[1].add(change.Kv.Key)
	if h.written >= keep/2 || h.changes[1].count >= mostChanges/2 || steps >= mostSteps {
		h.older, h.newer, h.written = h.newer, change.Kv.ModRevision, 0
		h.changes = [2]changes{h.changes[1], {}}
	}
}

// since is how many bytes were written since a revision, with what was written right before it.
func (h *history) since(revision int64) int64 {
	at, _ := slices.BinarySearchFunc(h.marks, revision, func(m mark, revision int64) int { return cmp.Compare(m.revision, revision) })
	if at == 0 {
		return h.all
	}
	return h.all - h.marks[at-1].all
}

// walked is how many revisions etcd walks at most for the former values of a user's keys since a revision. Beside each other, two parts of history cost up to twice what each costs by itself. No key has
// changed more often than there were revisions.
func (h *history) walked(user string, revisions, bytes int64) int64 {
	return min(2*(h.changes[0].steps[user]+h.changes[1].steps[user]), revisions*(bytes/perRevision))
}

// overwrites is what a request counts for keys of its user that change very often: a byte for each change that history has of them, as for a watch that looks for the former values, but the first ones. So who
// overwrites one key as fast as it may leaves everybody ten seconds of history, and not half a second.
func (c *Counter) overwrites(user string, request any) (bytes int64) {
	switch request := request.(type) {
	case *pb.PutRequest:
		if key := request.GetKey(); string(UserOf(key)) == user {
			c.mu.Lock()
			defer c.mu.Unlock()
			return max(0, c.history.changes[1].of[maphash.Bytes(hashSeed, key)]-fewOverwrites)
		}
	case *pb.TxnRequest:
		for _, op := range slices.Concat(request.GetSuccess(), request.GetFailure()) {
			switch {
			case op.GetRequestPut() != nil:
				bytes += c.overwrites(user, op.GetRequestPut())
			case op.GetRequestTxn() != nil:
				bytes += c.overwrites(user, op.GetRequestTxn())
			}
		}
	}
	return bytes
}

// Changes is how many changes history has of a key of a user, or a few more.
func (c *Counter) Changes(key []byte) int64 {
	hash := maphash.Bytes(hashSeed, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history.changes[0].of[hash] + c.history.changes[1].of[hash]
}

// OldHistory is the revision before which history is old: what is younger are between half of Config.History and all of it, or fewer bytes where they are many changes. 0: none is old.
func (c *Counter) OldHistory() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history.older
}

// HistorySince is how many bytes of history etcd reads for a watch of a user from a revision on; with previous values, it counts one more for each revision that etcd walks to find these.
func (c *Counter) HistorySince(user string, revision int64) (read, walked int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read = c.history.since(revision)
	return read, c.history.walked(user, max(0, c.revision+1-revision), read)
}
