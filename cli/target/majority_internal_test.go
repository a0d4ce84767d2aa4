package target

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
)

// TestUnlessCutOff makes calls that end in their own ways, and has a node say how the store is.
func TestUnlessCutOff(t *testing.T) {
	without := &fault.Advised{Err: status.Error(codes.Unavailable, "no majority")}
	refused, away := status.Error(codes.NotFound, "no node"), status.Error(codes.Unavailable, "no leader")
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	knows := func(err error) func(context.Context, bool) error {
		return func(context.Context, bool) error { return err }
	}
	says := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for name, test := range map[string]struct {
		call   func(context.Context) error
		cutOff func(context.Context, bool) error
		want   error
		took   time.Duration
	}{
		"it is answered":                  {says(nil), knows(without), nil, 0},
		"it is refused":                   {says(refused), knows(without), refused, 0},
		"a curator is away":               {says(away), knows(nil), away, 0},
		"a curator is cut off":            {says(away), knows(without), without, 0},
		"a curator that is cut off hangs": {hang, knows(without), without, majorityAfter},
		"a curator hangs, and is well":    {hang, knows(nil), context.DeadlineExceeded, CallTimeout},
		"it hangs, and one has not formed": {hang, func(_ context.Context, failed bool) error {
			if failed {
				return without
			}
			return nil
		}, without, CallTimeout},
		"it hangs, and so does who is asked": {hang, func(ctx context.Context, _ bool) error { <-ctx.Done(); return nil }, context.DeadlineExceeded, CallTimeout + majorityAgain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), CallTimeout)
				defer cancel()
				began := time.Now()
				err := unlessCutOff(ctx, test.cutOff, test.call)
				if code := status.Code(err); !errors.Is(err, test.want) && code != status.FromContextError(test.want).Code() || time.Since(began) != test.took {
					t.Errorf("after %s: %v, want %v after %s", time.Since(began), err, test.want, test.took)
				}
			})
		})
	}
}
