package usage_test

import (
	"context"
	"errors"
	"strings"
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
		// One that is given up costs nothing.
		given, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := put("ant", given); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a write that is given up: %v", err)
		}
		// What was deleted is known afterwards. A delete itself costs little.
		for range 5 {
			c.Deleted("ant", &pb.TxnResponse{Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1 << 13},
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
