package door

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mute is a stream on which nothing is sent.
type mute struct {
	grpc.ServerStream
	ctx context.Context
}

func (m mute) Context() context.Context { return m.ctx }
func (mute) SendMsg(any) error          { return nil }

// TestChangesAreToldAtAPace has many watches told of changes as fast as that goes: large ones, small ones, and such whose former values etcd finds behind many others.
func TestChangesAreToldAtAPace(t *testing.T) {
	event := func(revision, size int64, former bool) *pb.WatchResponse {
		e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: revision, Value: make([]byte, size)}}
		if former {
			e.PrevKv = &mvccpb.KeyValue{}
		}
		return &pb.WatchResponse{Events: []*mvccpb.Event{e}}
	}
	const present, changes = 5 * mebibyte, 2 * mebibyte
	for name, test := range map[string]struct {
		told   *pb.WatchResponse
		counts float64 // MiB
	}{
		"large":                    {event(present, mebibyte, false), 1},
		"small":                    {event(1, 0, false), 16. / 1024},
		"with a former value":      {event(present-mebibyte, 0, true), 1},
		"with an old former value": {event(1, 0, true), 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			ant := newCaller("ant", DefaultPatience, DefaultReadBound)
			times := int(512 / test.counts)
			began := time.Now()
			var telling sync.WaitGroup
			for range 8 {
				w := &watching{ServerStream: mute{ctx: t.Context()}, caller: ant, present: func() int64 { return present }, changes: func([]byte) int64 { return changes }}
				telling.Go(func() {
					for range times / 8 {
						if err := w.SendMsg(test.told); err != nil {
							t.Error(err)
						}
					}
				})
			}
			telling.Wait()
			if got, want := time.Since(began).Seconds(), float64(512-128)/64; got < want*0.98 || got > want*1.05 {
				t.Errorf("%s: told %d times in %.1f s, want %.1f", name, times, got, want)
			}
		})
	}
}

// TestWatchesOfOneKeyAreBounded begins watches of keys and prefixes that overlap, on several streams. A key may have so many of them; those that etcd refuses, that are cancelled, and of streams that end, are
// none.
func TestWatchesOfOneKeyAreBounded(t *testing.T) {
	ant := newCaller("ant", DefaultPatience, DefaultReadBound)
	one, other := &watching{ServerStream: mute{}, caller: ant}, &watching{ServerStream: mute{}, caller: ant}
	of := func(from, end string) span {
		return spanOf(&pb.WatchCreateRequest{Key: []byte(from), RangeEnd: []byte(end)})
	}
	begin := func(w *watching, times int, from, end string) {
		t.Helper()
		for range times {
			if err := w.begin(of(from, end)); err != nil {
				t.Fatalf("%d watches of %q to %q: %v", times, from, end, err)
			}
		}
	}
	full := func(w *watching, from, end string) {
		t.Helper()
		if err := w.begin(of(from, end)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "100 watches of one key") {
			t.Errorf("one more watch of %q to %q: %v", from, end, err)
		}
	}
	told := func(w *watching, response *pb.WatchResponse) {
		t.Helper()
		if err := w.SendMsg(response); err != nil {
			t.Fatal(err)
		}
	}
	begin(one, 60, "b", "")
	begin(one, 60, "d", "") // beside those
	begin(other, 39, "a", "c")
	begin(other, 1, "a", "z")
	for _, keys := range [][2]string{{"b", ""}, {"a", "c"}, {"a", "\x00"}, {"b", "b\x00"}} {
		full(one, keys[0], keys[1])
	}
	begin(one, 40-1, "c", "z")
	full(one, "d", "")
	begin(other, 1, "b\x00", "d") // between the two
	full(other, "a", "b\x00\x00")

	// The first that was asked for was made, and is cancelled; the second was not made.
	told(one, &pb.WatchResponse{Created: true, WatchId: 7})
	told(one, &pb.WatchResponse{Canceled: true, CompactRevision: 5, WatchId: 7}) // etcd keeps it
	full(one, "b", "")
	told(one, &pb.WatchResponse{Canceled: true, WatchId: 7})
	begin(one, 1, "b", "")
	full(one, "b", "")
	told(one, &pb.WatchResponse{Created: true, Canceled: true, WatchId: -1})
	begin(one, 1, "b", "")
	full(one, "b", "")
	one.end()
	begin(other, 60, "b", "")
	full(other, "b", "")
	other.end()
	if ant.watches != 0 || len(ant.watched) != 0 {
		t.Errorf("when all streams have ended, %d watches of %v are counted", ant.watches, ant.watched)
	}
	if err := other.begin(of("b", "")); status.Code(err) != codes.Canceled {
		t.Errorf("a watch on a stream that has ended: %v", err)
	}
}
