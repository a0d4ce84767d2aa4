package door

import (
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// watching is a call of Watch, which ends with the first watch that is one too many.
type watching struct {
	grpc.ServerStream
	caller  *caller
	present func() int64                                           // the revision of the store
	since   func(user string, revision int64) (read, walked int64) // how much history there is

	mu    sync.Mutex
	open  int
	ended bool
}

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
	case !w.count(1):
		return errExceeded(w.caller.user, "has %d watches, which is the most: watch prefixes in the place of single keys", maxWatches)
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

// SendMsg sees watches end. One whose history is gone does not: etcd keeps it until its client cancels it, and says so again.
func (w *watching) SendMsg(message any) error {
	if told, ok := message.(*pb.WatchResponse); ok && told.GetCanceled() && told.GetCompactRevision() == 0 {
		w.count(-1)
	}
	return w.ServerStream.SendMsg(message)
}

// count counts watches, and reports whether there may be as many.
func (w *watching) count(more int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caller.mu.Lock()
	defer w.caller.mu.Unlock()
	if w.ended || w.open+more < 0 || more > 0 && w.caller.watches+more > maxWatches {
		return false
	}
	w.open += more
	w.caller.watches += more
	return true
}

// end gives up those that are left. etcd may still receive what was sent before.
func (w *watching) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caller.mu.Lock()
	defer w.caller.mu.Unlock()
	w.caller.watches -= w.open
	w.ended = true
}
