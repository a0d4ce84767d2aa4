package door

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// asking is a stream on which a client asks for watches, each from the revision that is sent.
type asking struct {
	grpc.ServerStream
	ctx  context.Context
	from chan int64
	prev bool
}

func (a asking) Context() context.Context { return a.ctx }

func (a asking) RecvMsg(message any) error {
	message.(*pb.WatchRequest).RequestUnion = &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{StartRevision: <-a.from, PrevKv: a.prev}}
	return nil
}

// TestPastIsReadTogether asks for watches while an answer of another stream waits to be read. None begins in the past meanwhile: etcd would read history anew for each.
func TestPastIsReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ant := newCaller("ant", DefaultPatience, DefaultReadBound)
		from, got := make(chan int64), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		stream := &watching{ServerStream: asking{ctx: ctx, from: from}, caller: ant, present: func() int64 { return 5 }, since: func(string, int64) (int64, int64) { return 0, 0 }}
		ask := func(revision int64) bool {
			go func() { got <- stream.RecvMsg(&pb.WatchRequest{}) }()
			from <- revision
			synctest.Wait()
			return len(got) == 1
		}
		if !ask(5) || <-got != nil {
			t.Error("a watch from the past does not begin while nothing is sent")
		}
		end := ant.beginSend()
		for _, revision := range []int64{0, 6} {
			if !ask(revision) || <-got != nil {
				t.Errorf("a watch from revision %d does not begin", revision)
			}
		}
		if ask(5) {
			t.Fatal("a watch from the past begins while an answer is not read")
		}
		later := ant.beginSend() // it need not wait for what comes later
		end()
		if err := <-got; err != nil {
			t.Error(err)
		}
		if ask(1) {
			t.Fatal("a watch from the past begins while another answer is not read")
		}
		cancel()
		if <-got == nil {
			t.Error("a watch begins on a stream that has ended")
		}
		later()
	})
}

// TestThePastIsPaid begins watches from the past, again and again, and reads all that comes. Those that come together are read together, and what they cost is paid for before the next one begins.
func TestThePastIsPaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ant := newCaller("ant", DefaultPatience, DefaultReadBound)
		from := make(chan int64, 1)
		stream := &watching{
			ServerStream: asking{ctx: t.Context(), from: from}, caller: ant, present: func() int64 { return 5 },
			since: func(_ string, from int64) (read, walked int64) { return (5 - from) * 32 * mebibyte, math.MaxInt64 },
		}
		begin := func(revision int64) time.Duration {
			began := time.Now()
			from <- revision
			if err := stream.RecvMsg(&pb.WatchRequest{}); err != nil {
				t.Fatal(err)
			}
			return time.Since(began).Round(100 * time.Millisecond)
		}
		for range 90 { // all together, as after a restart
			if took := begin(1); took != 0 {
				t.Fatalf("one of many waits for %s", took)
			}
		}
		for range 2 {
			time.Sleep(pastInterval)
			begin(1)
		}
		time.Sleep(pastInterval)
		if took := begin(1); took < time.Second {
			t.Errorf("after 384 MiB of history, the next watch waits for %s", took)
		}
	})
}

// TestFormerValuesArePaidByEach begins many watches from the past with former values at once. etcd looks for those of each by itself, so each waits until the one before it is paid for.
func TestFormerValuesArePaidByEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ant := newCaller("ant", DefaultPatience, DefaultReadBound)
		began := time.Now()
		const watches = 8
		waited := make(chan time.Duration, watches)
		for range watches {
			from := make(chan int64, 1)
			stream := &watching{
				ServerStream: asking{ctx: t.Context(), from: from, prev: true}, caller: ant, present: func() int64 { return 5 },
				since: func(string, int64) (read, walked int64) { return 0, maxAnswers },
			}
			from <- 1
			go func() {
				if err := stream.RecvMsg(&pb.WatchRequest{}); err != nil {
					t.Error(err)
				}
				waited <- time.Since(began).Round(100 * time.Millisecond)
			}()
		}
		for n := range watches {
			if got, want := <-waited, max(0, time.Duration(n-1)*2*time.Second); got != want { // the first one owes nothing before, and the second what was free
				t.Errorf("watch %d begins after %s, want %s", n, got, want)
			}
		}
	})
}
