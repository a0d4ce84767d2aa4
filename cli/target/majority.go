package target

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// majorityAfter is how long a call of the cluster API goes on before a node is asked whether the consensus store has a majority at all: longer than an election. It is
	// asked again each majorityAgain.
	majorityAfter = 4 * time.Second
	majorityAgain = 2 * time.Second
)

// unlessCutOff makes a call of the cluster API. A curator whose store has no majority does not know which members are missing. The nodes with these members do: so one of them is asked when the
// call fails, or takes long, and what it says is the error. cutOff is told whether the call has failed.
func unlessCutOff(ctx context.Context, cutOff func(ctx context.Context, failed bool) error, call func(context.Context) error) error {
	calling, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for wait := majorityAfter; ; wait = majorityAgain {
			select {
			case <-calling.Done():
				return
			case <-time.After(wait):
			}
			if cut := cutOff(calling, false); cut != nil {
				end(cut)
				return
			}
		}
	}()
	err := call(calling)
	end(nil)
	<-watched
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
	default:
		return err
	}
	var cut *fault.Advised
	if errors.As(context.Cause(calling), &cut) {
		return cut
	}
	// The caller's own time may be over.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), majorityAgain)
	defer cancel()
	if cut := cutOff(asking, true); cut != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return cut
	}
	return err
}

// cutOff asks the nodes that the way knows whether the store has a majority. It returns what one says that has a member without one; nil: none says so, or another one has a majority: a
// member can be cut off alone. That a store has not formed on a node says nothing of the others, so it counts only for a call that has failed, and where there is nothing else to say.
func (t *Target) cutOff(ctx context.Context, failed bool) error {
	var found error
	formed := false
	// see returns whether enough is known.
	see := func(said *nodev1.Status) bool {
		store := said.GetStore()
		if store.GetQuorum() {
			found = nil
			return true
		}
		if cut := withoutMajority(said); cut != nil && !formed && (failed || store.GetFormed()) {
			found, formed = cut, store.GetFormed()
		}
		return false
	}
	if t.local != nil {
		response, err := nodev1.NewNodeServiceClient(t.local).GetStatus(ctx, &nodev1.GetStatusRequest{})
		if err == nil && see(response.GetStatus()) {
			return nil
		}
	}
	if t.known != nil {
		t.askNodes(ctx, see)
	}
	return found
}

// withoutMajority says that the store of a node has no majority, by what the node says of its member; nil: it does not say so.
func withoutMajority(said *nodev1.Status) error {
	store := said.GetStore()
	if store.GetQuorum() || store.GetProblem() == "" {
		return nil
	}
	what := "the consensus store has no majority of its members, without which the cluster decides nothing: "
	if !store.GetFormed() {
		what = "the consensus store does not serve on node " + said.GetNodeId() + ": "
	}
	return &fault.Advised{
		Err:  status.Error(codes.Unavailable, what+store.GetProblem()),
		Next: "`reeve store status " + said.GetNodeId() + "` shows its members, and whether they answer.",
	}
}
