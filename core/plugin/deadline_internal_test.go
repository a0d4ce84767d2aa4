package plugin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The role's server may end a call a moment before the core's own time for it is over.
func TestACallRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL")
		if ranOut(ctx, ended) {
			t.Error("with a minute left")
		}
		time.Sleep(time.Minute - time.Millisecond)
		for err, want := range map[error]bool{
			ended: true, status.Error(codes.Canceled, ""): true, status.Error(codes.Internal, ""): false, errors.New("other"): false, nil: false,
		} {
			if ranOut(ctx, err) != want {
				t.Errorf("%v: %v", err, !want)
			}
		}
		if ranOut(t.Context(), ended) {
			t.Error("without a deadline")
		}
	})
}
