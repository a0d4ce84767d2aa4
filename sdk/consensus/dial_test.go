package consensus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

var _ consensus.Host = (*role.Host)(nil)

func TestDialErrors(t *testing.T) {
	for reason, want := range map[hostv1.ConsensusUnavailableReason]error{
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NO_LOCAL_CONSENSUS: consensus.ErrNoLocalConsensus,
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_UNKNOWN_USER:       consensus.ErrUnknownUser,
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_MEMBER:         consensus.ErrNotMember,
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_GRANTED:        consensus.ErrNotGranted,
	} {
		core := newCore(t)
		core.answer.Set(unavailable(reason, "because of the test"))
		_, err := consensus.Dial(shortly(t), core)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "because of the test") {
			t.Errorf("%s: want %q, got: %v", reason, want, err)
		}
	}
	t.Run("a reason of a newer core", func(t *testing.T) {
		core := newCore(t)
		core.answer.Set(unavailable(99, "a new reason"))
		if _, err := consensus.Dial(shortly(t), core); err == nil || !strings.Contains(err.Error(), "a new reason") {
			t.Errorf("got: %v", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		core := newCore(t)
		core.refusal = status.Error(codes.PermissionDenied, "not you")
		if _, err := consensus.Dial(shortly(t), core); status.Code(err) != codes.PermissionDenied {
			t.Errorf("got: %v", err)
		}
	})
	t.Run("open at nothing", func(t *testing.T) {
		core := newCore(t)
		core.answer.Set(&hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Open{Open: &hostv1.ConsensusOpen{}}})
		if _, err := consensus.Dial(shortly(t), core); err == nil {
			t.Error("no error")
		}
	})
}

func TestDialWaits(t *testing.T) {
	waiting := unavailable(hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_WAITING, "the store to start")
	t.Run("as long as the context lets it", func(t *testing.T) {
		core := newCore(t)
		core.answer.Set(waiting)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := consensus.Dial(ctx, core)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got: %v", err)
		}
	})
	t.Run("for the store", func(t *testing.T) {
		core, store := newCore(t), newStore(t)
		core.answer.Set(waiting)
		dialled := dial(t, core)
		core.answer.Set(open(store))
		useful(t, <-dialled)
	})
	t.Run("for a core that is restarted", func(t *testing.T) {
		core, store := newCore(t), newStore(t)
		core.answer.Set(waiting)
		dialled := dial(t, core)
		core.stop()
		core.answer.Set(open(store))
		core.serve(t)
		useful(t, <-dialled)
	})
}

// dial dials beside the test.
func dial(t *testing.T, core *core) <-chan *consensus.Client {
	dialled := make(chan *consensus.Client, 1)
	ctx := shortly(t)
	go func() {
		client, err := consensus.Dial(ctx, core)
		if err != nil {
			t.Error(err)
		}
		dialled <- client
	}()
	return dialled
}

func useful(t *testing.T, client *consensus.Client) {
	t.Helper()
	if client == nil {
		t.FailNow()
	}
	if _, err := client.Put(shortly(t), "key", "value"); err != nil {
		t.Error(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
