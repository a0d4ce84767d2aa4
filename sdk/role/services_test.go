package role_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/roletest"
)

func callStore(ctx context.Context, process *roletest.Process) (unary, stream string, unaryErr, streamErr error) {
	client := consensusv1.NewConsensusServiceClient(process.Conn())
	formed, unaryErr := client.Form(ctx, &consensusv1.FormRequest{})
	watch, streamErr := client.WatchStore(ctx, &consensusv1.WatchStoreRequest{})
	if streamErr != nil {
		return formed.GetMemberId(), "", unaryErr, streamErr
	}
	status, streamErr := watch.Recv()
	return formed.GetMemberId(), status.GetStatus().GetMemberId(), unaryErr, streamErr
}

// Two roles of one plugin serve the same service: only the one that runs answers.
func TestOnlyTheRunningRoleServes(t *testing.T) {
	for _, role := range []string{"other", "store"} {
		t.Run(role, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			host, process := roletest.NewHost(t), launch(t, "probe")
			_, _, unaryErr, streamErr := callStore(ctx, process)
			wantCode(t, "a call before Start", unaryErr, codes.FailedPrecondition)
			wantCode(t, "a stream before Start", streamErr, codes.FailedPrecondition)
			if err := process.Start(host, role, ""); err != nil {
				t.Fatal(err)
			}
			unary, stream, unaryErr, streamErr := callStore(ctx, process)
			if unary != role || stream != role || unaryErr != nil || streamErr != nil {
				t.Errorf("got %q (%v) and %q (%v)", unary, unaryErr, stream, streamErr)
			}
		})
	}
	t.Run("probe", func(t *testing.T) {
		process := start(t, roletest.NewHost(t), "probe", "")
		_, _, unaryErr, streamErr := callStore(t.Context(), process)
		wantCode(t, "a call to another role's service", unaryErr, codes.FailedPrecondition)
		wantCode(t, "a stream of another role's service", streamErr, codes.FailedPrecondition)
	})
}

func TestServiceThatPanics(t *testing.T) {
	process := start(t, roletest.NewHost(t), "store", "")
	client := consensusv1.NewConsensusServiceClient(process.Conn())
	_, err := client.Form(t.Context(), &consensusv1.FormRequest{ClusterId: "panic"})
	wantCode(t, "a panic", err, codes.Internal)
	if _, err := client.Form(t.Context(), &consensusv1.FormRequest{}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// A stream of the role's ends with Run, so that it does not keep the process from ending.
func TestStreamsEndWithTheRole(t *testing.T) {
	process := start(t, roletest.NewHost(t), "store", "")
	stream, err := consensusv1.NewConsensusServiceClient(process.Conn()).WatchStore(t.Context(), &consensusv1.WatchStoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := process.Stop(2 * time.Minute); err != nil {
		t.Error(err)
	}
	process.AwaitStopped()
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream goes on after Stop")
	}
	wantExit(t, process, 0)
}
