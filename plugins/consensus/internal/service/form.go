package service

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// formation is one attempt to form the store. It is carried out by Run and goes on when the call that began it is given up, so that a core
// that asks again finds it where it is.
type formation struct {
	plan   store.Plan
	done   chan struct{}
	member string
	err    error
	again  bool // it was begun by the role itself, in the place of a member that was removed or stopped, and is tried until there is an answer
}

func (f *formation) succeed(member string) {
	f.member = member
	close(f.done)
}

func (f *formation) fail(err error) {
	f.err = err
	close(f.done)
}

// same reports whether two plans mean the same store. Whether it was new matters only until it is there.
func same(a, b store.Plan) bool {
	return a.ClusterID == b.ClusterID && a.NodeID == b.NodeID && a.ClusterUser == b.ClusterUser
}

// formations lets one attempt be made at a time.
type formations struct {
	mu      sync.Mutex
	current *formation
	ended   <-chan struct{} // closed when Run is asked to end
}

// join returns the present attempt if it is under way or has succeeded, and makes a new one, which the caller hands to Run, if not.
func (f *formations) join(plan store.Plan) (attempt *formation, begun bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && !f.current.failed() {
		if !same(f.current.plan, plan) {
			return nil, false, &store.Problem{
				Kind: consensusv1.FormProblemKind_FORM_PROBLEM_KIND_ALREADY_FORMED,
				Message: fmt.Sprintf("this instance already forms the store of cluster %s as node %s for the user %s; another needs another instance",
					f.current.plan.ClusterID, f.current.plan.NodeID, f.current.plan.ClusterUser),
			}
		}
		return f.current, false, nil
	}
	f.current = &formation{plan: plan, done: make(chan struct{})}
	return f.current, true, nil
}

func (f *formation) failed() bool {
	select {
	case <-f.done:
		return f.err != nil
	default:
		return false
	}
}

// renew begins the present attempt once more: the member that it formed is none any more.
func (f *formations) renew() *formation {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = &formation{plan: f.current.plan, done: make(chan struct{}), again: true}
	return f.current
}

// present is the present attempt; nil: there is none.
func (f *formations) present() *formation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

func (f *formations) clusterUser() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current.plan.ClusterUser
}

// Form makes the local member part of a store, and returns when it serves.
func (s *Service) Form(ctx context.Context, request *consensusv1.FormRequest) (*consensusv1.FormResponse, error) {
	plan, err := planOf(request)
	if err != nil {
		return nil, err
	}
	r, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	attempt, begun, err := r.attempts.join(plan)
	if err != nil {
		return nil, refusal(err)
	}
	if begun {
		r.forms <- attempt // never waits: it has room for the one attempt there is
	}
	select {
	case <-attempt.done:
	case <-r.attempts.ended:
		return nil, status.Error(codes.Unavailable, "consensus: the role is stopping")
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if attempt.err != nil {
		return nil, refusal(attempt.err)
	}
	return &consensusv1.FormResponse{MemberId: attempt.member}, nil
}

func planOf(request *consensusv1.FormRequest) (store.Plan, error) {
	plan := store.Plan{
		ClusterID:   request.GetClusterId(),
		NodeID:      request.GetNodeId(),
		ClusterUser: request.GetClusterUser(),
		New:         request.GetNew() != nil,
		Join:        request.GetJoin() != nil,
		Restored:    request.GetRestored() != nil,
	}
	switch {
	case plan.ClusterID == "" || plan.NodeID == "":
		return plan, status.Error(codes.InvalidArgument, "consensus: Form needs a cluster ID and a node ID")
	case !identity.ValidConsensusUser(plan.ClusterUser):
		return plan, status.Errorf(codes.InvalidArgument, "consensus: the cluster user %q cannot be a ConsensusUser", plan.ClusterUser)
	case request.GetHow() == nil:
		return plan, status.Error(codes.InvalidArgument, "consensus: Form needs to know whether the store is new, existing, restored, or to be joined")
	}
	return plan, nil
}

// refusal is the gRPC status of an error of Form.
func refusal(err error) error {
	var problem *store.Problem
	if errors.Is(err, store.ErrWaiting) {
		return status.Errorf(codes.Unavailable, "consensus: %v", err)
	}
	if !errors.As(err, &problem) {
		return status.Errorf(codes.Internal, "consensus: form the store: %v", err)
	}
	refused := status.New(codes.FailedPrecondition, "consensus: "+problem.Message)
	detailed, err := refused.WithDetails(&consensusv1.FormProblem{Kind: problem.Kind, Message: problem.Message})
	if err != nil {
		return refused.Err()
	}
	return detailed.Err()
}
