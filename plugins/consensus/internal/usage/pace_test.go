package usage_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// TestPace writes as fast as it can, by the clock of the test.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := usage.Pace{PerSecond: 1 << 20, AtOnce: 4 << 20}
		c := usage.Paced(pace)
		put := func(user string, ctx context.Context) (time.Duration, error) {
			began := time.Now()
			err := c.Wait(ctx, user, &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20-1<<10-10)})
			return time.Since(began).Round(10 * time.Millisecond), err
		}
		for n := range 4 {
			if took, err := put("ant", t.Context()); took != 0 || err != nil {
				t.Errorf("write %d: %v, %v", n, took, err)
			}
		}
		if took, err := put("ant", t.Context()); took < 900*time.Millisecond || took > time.Second || err != nil {
			t.Errorf("the write after the burst: %v, %v", took, err)
		}
		if took, err := put("bee", t.Context()); took != 0 || err != nil {
			t.Errorf("another user: %v, %v", took, err)
		}
		// One that would come too late is refused at once, and one that is given up costs nothing.
		given, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if took, err := put("ant", given); took != 0 || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a write that has no time: %v, %v", took, err)
		}
		given, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := put("ant", given); status.Code(err) != codes.Canceled {
			t.Errorf("a write that is given up: %v", err)
		}
		// What was deleted is known afterwards. A delete itself costs little.
		for range 5 {
			c.Deleted("ant", &pb.TxnResponse{Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1 << 11},
			}}}})
		}
		_, err := put("ant", t.Context())
		var refused *usage.PaceError
		if !errors.As(err, &refused) || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "1024 KiB a second") {
			t.Errorf("too many: %v", err)
		}
		if err := c.Wait(t.Context(), "ant", &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{}}}}); err != nil {
			t.Errorf("a read: %v", err)
		}
		time.Sleep(15 * time.Second)
		if took, err := put("ant", t.Context()); took != 0 || err != nil {
			t.Errorf("after a pause: %v, %v", took, err)
		}
	})
}

// TestWritesWithDeadlines has more writers than there is room for, none of which waits for longer than a second. What they give up must not be paid for.
func TestWritesWithDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := usage.Paced(usage.Pace{PerSecond: 4 << 20, AtOnce: 64 << 20})
		request := &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20)}
		began := time.Now()
		var late atomic.Int64
		var group sync.WaitGroup
		for range 32 {
			group.Go(func() {
				for time.Since(began) < 2*time.Minute {
					ctx, cancel := context.WithCancel(t.Context())
					stop := time.AfterFunc(time.Second, cancel) // a deadline that the store cannot see
					err := c.Wait(ctx, "ant", request)
					stop.Stop()
					cancel()
					switch {
					case err != nil:
						time.Sleep(100 * time.Millisecond)
					case time.Since(began) > time.Minute:
						late.Add(1)
					}
				}
			})
		}
		group.Wait()
		if late.Load() < 230 {
			t.Errorf("%d MiB in the second minute, of 240", late.Load())
		}
	})
}

// TestFewBytesAreUnderWay has a user write much at once, none of which is answered. The others of that user wait for it, as long as they have patience.
func TestFewBytesAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := usage.Paced(usage.Pace{PerSecond: 4 << 20, AtOnce: 64 << 20})
		begin := func(ctx context.Context, user string, bytes int) (func(), time.Duration, error) {
			began := time.Now()
			end, err := c.Begin(ctx, user, &pb.PutRequest{Key: []byte("k"), Value: make([]byte, bytes)})
			return end, time.Since(began), err
		}
		var ends []func()
		for range 3 {
			end, took, err := begin(t.Context(), "ant", 1<<18)
			if took != 0 || err != nil {
				t.Fatal(took, err)
			}
			ends = append(ends, end)
		}
		given, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := begin(given, "ant", 1<<18); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("one that is given up: %v", err)
		}
		if _, _, err := begin(t.Context(), "ant", 1<<18); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "1 MiB") {
			t.Errorf("one too many: %v", err)
		}
		for _, other := range []struct {
			user  string
			bytes int
		}{{"ant", 1 << 10}, {"bee", 8 << 20}} { // what is larger than all goes alone
			end, took, err := begin(t.Context(), other.user, other.bytes)
			if took != 0 || err != nil {
				t.Fatalf("%s: %v, %v", other.user, took, err)
			}
			end()
		}
		time.AfterFunc(time.Second, ends[0])
		end, took, err := begin(t.Context(), "ant", 1<<18)
		if took != time.Second || err != nil {
			t.Fatalf("after one was answered: %v, %v", took, err)
		}
		end()
	})
}

// TestHistorySince adds up what was written since a revision: all of it, and not much more. What is older than may be kept is forgotten.
func TestHistorySince(t *testing.T) {
	const changes, bytes, slack = 5000, 1 << 10, 128 << 10
	for _, since := range []int64{0, 1, 100, 2500, changes - 1, changes} {
		want := min(changes, changes+1-since) * bytes
		if got := usage.HistoryOf(changes, bytes, since); got < want || got > want+slack {
			t.Errorf("since revision %d there are %d bytes, want %d", since, got, want)
		}
	}
}
