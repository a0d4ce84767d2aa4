package door

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const mebibyte = int64(1 << 20)

// reserving waits for room beside the test.
func reserving(ctx context.Context, ant *caller, bytes int64) <-chan error {
	got := make(chan error, 1)
	go func() { got <- ant.reserve(ctx, bytes) }()
	synctest.Wait()
	return got
}

// TestLargeAnswersGetTheirRoom has one wait that needs nearly all, beside others that would take what is given back piece by piece.
func TestLargeAnswersGetTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ant := newCaller("ant", time.Minute, time.Minute)
		for range 12 {
			if !ant.tryReserve(10 * mebibyte) {
				t.Fatal("no room for 120 MiB")
			}
		}
		first := reserving(t.Context(), ant, 100*mebibyte)
		second := reserving(t.Context(), ant, 5*mebibyte)
		for n := range 12 {
			if len(first)+len(second) != 0 {
				t.Fatalf("%d and %d have room when %d MiB are taken", len(first), len(second), ant.answers>>20)
			}
			if !ant.tryReserve(mebibyte) { // one key at a time goes on
				t.Error("a small answer has to wait")
			}
			ant.release(mebibyte)
			ant.release(10 * mebibyte)
			synctest.Wait()
			if left := 110 - 10*n; left > 28 && ant.tryReserve(5*mebibyte) {
				t.Errorf("a large answer passes one that is in line, with %d MiB taken", left)
			}
			if len(first) == 1 {
				break
			}
		}
		synctest.Wait()
		if err := errors.Join(<-first, <-second); err != nil || ant.answers != 125*mebibyte {
			t.Errorf("%d MiB are taken: %v", ant.answers>>20, err)
		}
	})
}

// TestPatienceForRoomEnds refuses what found no room in time, and leaves the line to the next one.
func TestPatienceForRoomEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ant := newCaller("ant", 5*time.Second, time.Minute)
		if !ant.tryReserve(100 * mebibyte) {
			t.Fatal("no room")
		}
		given, cancel := context.WithCancel(t.Context())
		inLine := reserving(t.Context(), ant, 50*mebibyte)
		behind, small := reserving(t.Context(), ant, 50*mebibyte), reserving(given, ant, 30*mebibyte)
		cancel()
		if err := <-small; !errors.Is(err, context.Canceled) {
			t.Errorf("one that is given up: %v", err)
		}
		for _, err := range []error{<-inLine, <-behind} {
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("without room: %v", err)
			}
		}
		later := reserving(t.Context(), ant, 50*mebibyte)
		ant.settle(100*mebibyte, 10*mebibyte)
		if err := <-later; err != nil || ant.answers != 60*mebibyte {
			t.Errorf("%d MiB are taken: %v", ant.answers>>20, err)
		}
	})
}

// TestReadsDoNotWaitForWrites has all turns of writes taken, which wait for their user's pace or a quorum.
func TestReadsDoNotWaitForWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ant := newCaller("ant", time.Minute, time.Minute)
		begin := func(method string) *turn {
			own := &turn{caller: ant, of: ant.turnsOf(method)}
			go turns{}.HandleRPC(context.WithValue(t.Context(), turnKey{}, own), &stats.Begin{})
			synctest.Wait()
			return own
		}
		for range maxTurns {
			if !begin(pb.KV_Txn_FullMethodName).taken {
				t.Fatal("a write waits for its turn")
			}
		}
		if begin(pb.KV_Put_FullMethodName).taken {
			t.Error("one write more has a turn")
		}
		if !begin(pb.KV_Range_FullMethodName).taken {
			t.Error("a read waits behind writes")
		}
		<-ant.writing
		synctest.Wait()
	})
}

// TestReadingIsPaced reads much at once, and what it read is paid for before the next call. One that has no time for that is refused, and another user does not wait.
func TestReadingIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ant, bee := newCaller("ant", DefaultPatience, DefaultReadBound), newCaller("bee", DefaultPatience, DefaultReadBound)
		wait := func(ctx context.Context, c *caller) (time.Duration, error) {
			began := time.Now()
			err := c.paced(ctx)
			return time.Since(began).Round(100 * time.Millisecond), err
		}
		for n := range 2 { // at once; the second one owes
			if took, err := wait(t.Context(), ant); took != 0 || err != nil {
				t.Fatalf("call %d: %v, %v", n, took, err)
			}
			ant.owes(maxAnswers)
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, err := wait(hurried, ant); took != 0 || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one that has no time: %v, %v", took, err)
		}
		if took, err := wait(t.Context(), bee); took != 0 || err != nil {
			t.Errorf("another user: %v, %v", took, err)
		}
		if took, err := wait(t.Context(), ant); took != 2*time.Second || err != nil {
			t.Errorf("after 256 MiB: %v, %v", took, err)
		}
	})
}
