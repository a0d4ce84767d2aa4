package door

import (
	"cmp"
	"context"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// watching is a call of Watch, which ends with the first watch that is one too many.
type watching struct {
	grpc.ServerStream
	caller  *caller
	present func() int64                                           // the revision of the store
	since   func(user string, revision int64) (read, walked int64) // how much history there is
	changes func(key []byte) int64                                 // how many changes history has of a key

	mu    sync.Mutex
	asked []span         // of which etcd has not told yet that they were made, in that order
	open  map[int64]span // by the IDs of the watches
	ended bool
}

// span is the keys of a watch: from one on, and before another one; none: all that follow.
type span struct{ from, before string }

func spanOf(create *pb.WatchCreateRequest) span {
	s := span{string(create.GetKey()), string(create.GetRangeEnd())}
	switch s.before {
	case "":
		s.before = s.from + "\x00"
	case "\x00":
		s.before = ""
	}
	return s
}

// has reports whether a key is in it.
func (s span) has(key string) bool { return s.from <= key && (s.before == "" || key < s.before) }

func (w *watching) RecvMsg(message any) error {
	if err := w.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	request, _ := message.(*pb.WatchRequest)
	create := request.GetCreateRequest()
	switch {
	case create == nil:
		return nil
	case len(create.GetKey()) > maxWatchedKey || len(create.GetRangeEnd()) > maxWatchedKey:
		return errExceeded(w.caller.user, "watches a key of more than %d bytes, which is the most", maxWatchedKey)
	case len(create.GetFilters()) > len(pb.WatchCreateRequest_FilterType_name):
		return errExceeded(w.caller.user, "watches with %d filters, and there are %d", len(create.GetFilters()), len(pb.WatchCreateRequest_FilterType_name))
	}
	if err := w.begin(spanOf(create)); err != nil {
		return err
	}
	// etcd reads history into memory for those that begin in the past, again for each that comes later. So they come together, or when what was sent before is read.
	if from := create.GetStartRevision(); from > 0 && from <= w.present() {
		leave, err := w.caller.inLine(w.Context())
		if err != nil {
			return err
		}
		read, walked := w.since(w.caller.user, from)
		w.caller.owesPast(read)
		if create.GetPrevKv() { // etcd finds them anew for each watch
			w.caller.owes(walked)
		}
		leave()
		return w.caller.awaitSends(w.Context())
	}
	return nil
}

// SendMsg sees watches begin and end. One whose history is gone does not end: etcd keeps it until its client cancels it, and says so again. What changed is sent at the pace of what is read: etcd puts together
// what a watch has missed meanwhile.
func (w *watching) SendMsg(message any) error {
	told, ok := message.(*pb.WatchResponse)
	if ok && (told.GetCreated() || told.GetCanceled() && told.GetCompactRevision() == 0) {
		w.note(told)
	}
	if len(told.GetEvents()) > 0 {
		defer w.caller.beginSend()()
		if err := w.caller.pays(w.Context(), w.caller.pace, w.costs(told)); err != nil {
			return err
		}
	}
	return w.ServerStream.SendMsg(message)
}

// costs is what changes count, with the revisions that etcd has walked for former values: those of their keys that came since then.
func (w *watching) costs(told *pb.WatchResponse) int64 {
	bytes := perTold + int64(proto.Size(told))
	present := w.present()
	for _, event := range told.GetEvents() {
		if event.GetPrevKv() != nil {
			bytes += max(0, min(present-event.GetKv().GetModRevision(), w.changes(event.GetKv().GetKey())))
		}
	}
	return bytes
}

// begin counts a watch in, if there may be one more.
func (w *watching) begin(of span) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return status.FromContextError(context.Canceled).Err()
	}
	if err := w.caller.watch(of); err != nil {
		return err
	}
	if w.open == nil {
		w.open = make(map[int64]span)
	}
	w.asked = append(w.asked, of)
	return nil
}

// note takes note of a watch that etcd has made, has not made, or has ended.
func (w *watching) note(told *pb.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := told.GetWatchId()
	if told.GetCreated() && len(w.asked) > 0 {
		w.open[id], w.asked = w.asked[0], w.asked[1:]
	}
	if of, ok := w.open[id]; ok && told.GetCanceled() {
		delete(w.open, id)
		w.caller.unwatch(of)
	}
}

// end gives up those that are left. etcd may still receive what was sent before.
func (w *watching) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.asked {
		w.caller.unwatch(of)
	}
	for _, of := range w.open {
		w.caller.unwatch(of)
	}
	w.asked, w.open, w.ended = nil, nil, true
}

// watch counts a watch in, or refuses it.
func (c *caller) watch(of span) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches >= maxWatches {
		return errExceeded(c.user, "has %d watches, which is the most: watch prefixes in the place of single keys", maxWatches)
	}
	if c.watchesWithin(of) >= maxWatchesOfKey {
		return errExceeded(c.user, "has %d watches of one key, which is the most: share one among all who want to know of it", maxWatchesOfKey)
	}
	c.watches++
	c.watched[of]++
	return nil
}

// unwatch counts a watch out.
func (c *caller) unwatch(of span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches--
	if c.watched[of]--; c.watched[of] == 0 {
		delete(c.watched, of)
	}
}

// watchesWithin is how many watches the key has, of some, that has most of them; c.mu is held.
func (c *caller) watchesWithin(keys span) (most int) {
	type edge struct {
		at   string
		more int
	}
	var edges []edge
	for of, count := range c.watched {
		from := max(of.from, keys.from)
		if !of.has(from) || !keys.has(from) {
			continue
		}
		edges = append(edges, edge{from, count})
		if of.before != "" {
			edges = append(edges, edge{of.before, -count})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.more, b.more)) }) // what ends at a key does not have it
	watches := 0
	for _, e := range edges {
		watches += e.more
		most = max(most, watches)
	}
	return most
}
