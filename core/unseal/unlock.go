package unseal

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/seal/recovery"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// offer is what a recovery file held, on its way to the Open that waits.
type offer struct {
	recovered *recovery.Recovered
	answer    chan answer
}

type answer struct {
	notes []string
	err   error
}

// Unlock gives what a recovery file held to the Open that waits, and returns when the volume is open. The request is zeroed.
func (r *Room) Unlock(ctx context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error) {
	defer clear(request.GetRecovered())
	if !r.parts.kind("").Describe().Encrypted {
		return nil, status.Error(codes.FailedPrecondition, "the volume of this node is not encrypted: there is nothing to unlock")
	}
	recovered, err := recovery.Parse(request.GetRecovered())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	o := &offer{recovered, make(chan answer, 1)}
	watcher := r.board.status.Watch()
	for offered := false; !offered; {
		changed := watcher.Changed()
		if refusal := notWaiting(r.board.now()); refusal != nil {
			recovered.Destroy()
			return nil, refusal
		}
		select {
		case r.offers <- o:
			offered = true
		case <-changed:
			watcher.Latest()
		case <-r.failed:
			recovered.Destroy()
			return nil, stopping()
		case <-ctx.Done():
			recovered.Destroy()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	// From here on what was recovered belongs to the Open, which always answers.
	a := <-o.answer
	switch _, known := status.FromError(a.err); {
	case a.err == nil:
		return &nodev1.UnlockResponse{Notes: a.notes}, nil
	case known:
		return nil, a.err
	case errors.Is(a.err, context.Canceled) && r.board.now() == isOpen:
		// Another source was sooner.
		return nil, notWaiting(isOpen)
	case errors.Is(a.err, context.Canceled):
		return nil, stopping()
	default:
		return nil, status.Errorf(codes.FailedPrecondition, "the volume is not opened: %v", a.err)
	}
}

// stopping says that reeved ends, with or without having been told to.
func stopping() error {
	return status.Error(codes.Unavailable, "reeved is being stopped: say it again when it has been started")
}

// notWaiting says why nobody waits for a recovery file in a state.
func notWaiting(state clusterv1.StorageState) error {
	switch state {
	case isOpen:
		return status.Error(codes.FailedPrecondition, "the volume of this node is open")
	case making:
		return status.Error(codes.FailedPrecondition, "the volume of this node is being made: `reeve status` says what it waits for")
	case closing:
		return status.Error(codes.FailedPrecondition, "the volume of this node is being closed: `reeve status` says what keeps it")
	}
	return nil
}
