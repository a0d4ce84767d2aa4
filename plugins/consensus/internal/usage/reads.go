package usage

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

const (
	// mostOfKey is the most that one key and its value have: etcd takes no larger request.
	mostOfKey = int64(2 << 20)
	// perKey is what a key costs in memory beside its bytes and those of its value.
	perKey = int64(128)
	// perVisit is what a range counts for each key that etcd passes in its index, whatever it answers: it counts the keys of a range even where the request has a limit. At the pace of what is read
	// a user has a million keys passed a second.
	perVisit = int64(64)
	// mostVisits is what one range counts at most: nobody is refused a request with one because of how many keys it has.
	mostVisits = int64(32 << 20)
)

// MostRead is the most that a request may read, by what the user has; what that does not tell is without end.
func (c *Counter) MostRead(user string, request any) int64 {
	c.mu.Lock()
	a := c.account(user)
	all, allKeys := a.stored.Bytes+a.reserved, a.stored.Keys
	if a.reserved > 0 {
		allKeys += a.reserved / int64(len(consensusv1.UserPrefix(user))) // no key is shorter
	}
	c.mu.Unlock()
	most, _ := eachRead(request, func(r read) (int64, error) {
		switch {
		case !r.within(user) || r.countOnly:
			return 0, nil
		case r.unseen:
			return math.MaxInt32, nil // it is looked at, since the answer does not tell
		case len(r.end) == 0 && !r.lease:
			return mostOfKey + perKey, nil
		case r.revision != 0:
			return math.MaxInt32, nil // what it had once
		case r.lease:
			return all, nil
		}
		keys := allKeys
		if r.limit > 0 && r.limit < keys {
			keys = r.limit
		}
		return min(all, keys*mostOfKey) + perKey*keys, nil
	})
	visits, _ := c.visits(user, request)
	return most + visits + c.walked(user, request)
}

// walked is what a request counts for the changes of keys that etcd passes where it reads at a former revision: it walks those of each key from the newest on, three nanoseconds for each. One key has no
// more changes than there were revisions since then, and all keys of a range have no more than history has.
func (c *Counter) walked(user string, request any) int64 {
	bytes, _ := eachRead(request, func(r read) (int64, error) {
		if r.revision == 0 || !r.within(user) {
			return 0, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch since := c.revision - r.revision; {
		case since <= 0:
			return 0, nil
		case len(r.end) == 0:
			return min(since, mostVisits), nil
		default:
			return min(max(since, c.history.since(r.revision)/perRevision), mostVisits), nil
		}
	})
	return bytes
}

// visits is what a request counts for the keys that etcd passes, if each range were in front of all that the user has, and how many ranges it has. Where that is not known, since no key is read
// for it, it is not looked: to look would be to pass them. Keys that were deleted are passed until they are compacted.
func (c *Counter) visits(user string, request any) (bytes, ranges int64) {
	_, _ = eachRead(request, func(r read) (int64, error) {
		if len(r.end) > 0 && r.within(user) {
			ranges++
		}
		return 0, nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.account(user)
	return ranges * min(perVisit*(a.stored.Keys+a.gone()), mostVisits), ranges
}

// fewPassed is how many keys a range of a transaction that writes is looked at for.
const fewPassed = 256

// passed is visits for a request that writes, less where a look tells that its ranges are in front of few keys: mutexes and elections ask for the first key of a prefix of their own, whatever else the
// user has.
func (c *Counter) passed(ctx context.Context, user string, request any) (bytes, ranges int64, err error) {
	most, ranges := c.visits(user, request)
	if ranges == 0 || ranges > fewReads || most <= ranges*perVisit*fewPassed {
		return most, ranges, nil
	}
	looked, err := c.look(ctx, user)
	if err != nil {
		return 0, ranges, err
	}
	defer looked()
	c.mu.Lock()
	gone := c.account(user).gone()
	c.mu.Unlock()
	bytes, err = eachRead(request, func(r read) (int64, error) {
		if len(r.end) == 0 || !r.within(user) {
			return 0, nil
		}
		found, err := readPage(ctx, c.config.KV, r.key, r.end, mvcc.RangeOptions{Limit: fewPassed + 1, FastKeysOnly: true})
		if err != nil {
			return 0, err
		}
		if len(found.KVs) > fewPassed {
			return most / ranges, nil
		}
		return min(most/ranges, perVisit*(int64(len(found.KVs))+gone)), nil
	})
	return bytes, ranges, err
}

// Visited is what a request has counted for the keys that etcd passed, by its answer; nil: by the most that they can be.
func (c *Counter) Visited(user string, request, answer any) int64 {
	most, ranges := c.visits(user, request)
	walked := c.walked(user, request)
	if answer == nil || ranges == 0 {
		return most + walked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(most, perVisit*(counted(answer)+ranges*c.account(user).gone())) + walked
}

// counted is how many keys the ranges of an answer have, with those that are not in it.
func counted(answer any) (keys int64) {
	switch answer := answer.(type) {
	case *pb.RangeResponse:
		return answer.GetCount()
	case *pb.TxnResponse:
		for _, op := range answer.GetResponses() {
			keys += op.GetResponseRange().GetCount()
			if nested := op.GetResponseTxn(); nested != nil {
				keys += counted(nested)
			}
		}
	}
	return keys
}

// fewReads is how many keys a request may read for which it is looked at once.
const fewReads = 8

// Reads is what a request reads as the store is now. Only the user's own keys are looked at: etcd refuses to read others, and how much they are is nobody's
// business. One look of a user at ranges or many keys is made at a time: a part of it is in memory, and everybody's writes wait while that is read.
func (c *Counter) Reads(ctx context.Context, user string, request any, most int64) (int64, error) {
	visits, _ := c.visits(user, request)
	visits += c.walked(user, request)
	read, err := c.reads(ctx, user, request, most-visits)
	return read + visits, err
}

// look waits until nobody else looks at what the user has.
func (c *Counter) look(ctx context.Context, user string) (looked func(), err error) {
	c.mu.Lock()
	turn := &c.account(user).looking
	c.mu.Unlock()
	return c.turn(ctx, turn)
}

// turn waits for a turn of a user, which lasts until end is called.
func (c *Counter) turn(ctx context.Context, of *chan struct{}) (end func(), err error) {
	c.mu.Lock()
	if *of == nil {
		*of = make(chan struct{}, 1)
	}
	turn := *of
	c.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reads is Reads without the keys that are passed only.
func (c *Counter) reads(ctx context.Context, user string, request any, most int64) (int64, error) {
	c.mu.Lock()
	a := c.account(user)
	all := a.stored.Bytes + a.reserved
	c.mu.Unlock()
	reads, ranged := 0, false
	_, _ = eachRead(request, func(r read) (int64, error) {
		reads++
		ranged = ranged || len(r.end) > 0
		return 0, nil
	})
	if ranged || reads > fewReads {
		looked, err := c.look(ctx, user)
		if err != nil {
			return 0, err
		}
		defer looked()
	}
	left := most
	return eachRead(request, func(r read) (int64, error) {
		if !r.within(user) || r.countOnly || left < 0 {
			return 0, ctx.Err() // the sum is known to be too large, or it does not read
		}
		if r.lease {
			return min(all, most), nil // its keys are known to etcd only
		}
		size, err := c.sizeOfRange(ctx, r, left)
		left -= size
		return size, err
	})
}

// sizeOfRange adds up keys and values, page by page.
func (c *Counter) sizeOfRange(ctx context.Context, r read, most int64) (total int64, err error) {
	for from, left := r.key, r.limit; ; {
		limit := int64(pageKeys)
		if left > 0 {
			limit = min(limit, left)
		}
		page, err := readPage(ctx, c.config.KV, from, r.end, mvcc.RangeOptions{Rev: r.revision, Limit: limit, FastKeysOnly: r.keysOnly})
		if err != nil {
			return total, ctx.Err() // otherwise it is the request's revision, of which etcd says so
		}
		for _, kv := range page.KVs {
			total += sizeOf(kv) + perKey
		}
		left -= limit
		if total > most || int64(len(page.KVs)) < limit || len(r.end) == 0 || r.limit > 0 && left <= 0 {
			return total, nil
		}
		from = append(bytes.Clone(page.KVs[len(page.KVs)-1].Key), 0)
	}
}

// read is one range that a request reads.
type read struct {
	key, end            []byte
	revision, limit     int64
	countOnly, keysOnly bool
	lease               bool // the keys of a lease
	unseen              bool // etcd reads more than it answers
}

// within reports whether a range is in a user's prefix. etcd refuses all others.
func (r read) within(user string) bool {
	prefix := consensusv1.UserPrefix(user)
	end := strings.TrimSuffix(prefix, "/") + "0" // '0' follows '/'
	return r.lease || bytes.HasPrefix(r.key, []byte(prefix)) && (len(r.end) == 0 || bytes.Compare(r.end, r.key) > 0 && string(r.end) <= end)
}

// eachRead adds up what a request reads, in both branches of a transaction: which of them it is, is not known before.
func eachRead(request any, size func(read) (int64, error)) (int64, error) {
	switch request := request.(type) {
	case *pb.RangeRequest:
		return size(readOf(request))
	case *pb.PutRequest:
		if request.GetPrevKv() || request.GetIgnoreLease() {
			return size(read{key: request.GetKey()})
		}
	case *pb.DeleteRangeRequest:
		if request.GetPrevKv() {
			return size(read{key: request.GetKey(), end: request.GetRangeEnd()})
		}
	case *pb.LeaseTimeToLiveRequest:
		if request.GetKeys() {
			return size(read{lease: true})
		}
	case *pb.TxnRequest:
		return eachReadOfTxn(request, size)
	}
	return 0, nil
}

func eachReadOfTxn(request *pb.TxnRequest, size func(read) (int64, error)) (total int64, err error) {
	add := func(n int64, failed error) {
		total += n
		err = cmp.Or(err, failed)
	}
	readOnly := txn.IsTxnReadonly(request)         // otherwise what it reads is looked at when it waits for its pace
	for _, compare := range request.GetCompare() { // etcd reads the values of a range, whatever is compared
		add(size(read{key: compare.GetKey(), end: compare.GetRangeEnd(), unseen: readOnly}))
	}
	for _, op := range slices.Concat(request.GetSuccess(), request.GetFailure()) {
		switch {
		case op.GetRequestRange() != nil:
			add(eachRead(op.GetRequestRange(), size))
		case op.GetRequestPut() != nil:
			add(eachRead(op.GetRequestPut(), size))
		case op.GetRequestDeleteRange() != nil:
			add(eachRead(op.GetRequestDeleteRange(), size))
		case op.GetRequestTxn() != nil:
			add(eachReadOfTxn(op.GetRequestTxn(), size))
		}
	}
	return total, err
}

// readOf is what etcd reads for a request: to sort and to filter it reads everything, whatever the limit is.
func readOf(request *pb.RangeRequest) read {
	limit, unseen := request.GetLimit(), txn.HasRevisionFilters(request)
	switch {
	case !txn.IsDefaultOrdering(request.GetSortTarget(), request.GetSortOrder()) || unseen:
		unseen = unseen || limit > 0
		limit = 0
	case limit > 0 && limit < math.MaxInt64:
		limit++ // to know whether there are more
	}
	return read{
		key: request.GetKey(), end: request.GetRangeEnd(), revision: request.GetRevision(), limit: limit, countOnly: request.GetCountOnly(),
		keysOnly: request.GetKeysOnly() && request.GetSortTarget() != pb.RangeRequest_VALUE, unseen: unseen && !request.GetCountOnly(),
	}
}
