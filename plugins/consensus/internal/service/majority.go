package service

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// pause is something that is to be done while the member does not run. Run carries it out, and starts the member again.
type pause struct {
	do   func(config Config, last *store.Local) error
	done chan error
}

// errPaused says that the member was stopped, and what was to be done is done.
var errPaused = errors.New("the member was stopped for a moment")

func (p *pause) carryOut(config Config, last *store.Local) { p.done <- p.do(config, last) }

// stopped has something done while the member does not run.
func (r *running) stopped(ctx context.Context, do func(Config, *store.Local) error) error {
	p := &pause{do: do, done: make(chan error, 1)}
	select {
	case r.pauses <- p:
	case <-r.attempts.ended:
		return status.Error(codes.Unavailable, "consensus: the role is stopping")
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	select {
	case err := <-p.done:
		return err
	case <-r.attempts.ended:
		return status.Error(codes.Unavailable, "consensus: the role is stopping")
	}
}

// open forms the member, and lets it be stopped meanwhile.
func (r *running) open(ctx context.Context, config Config, settings store.Config, plan store.Plan) (*store.Store, error) {
	for {
		opening, stop := context.WithCancelCause(ctx)
		ended, watched := make(chan struct{}), make(chan *pause, 1)
		go func() {
			defer close(watched)
			select {
			case p := <-r.pauses:
				watched <- p
				stop(errPaused)
			case <-ended:
			}
		}()
		formed, err := store.Open(opening, settings, plan)
		close(ended)
		asked := <-watched
		stop(nil)
		if asked == nil {
			return formed, err
		}
		if formed != nil {
			err = formed.Close()
		}
		if broken := (*store.BrokenError)(nil); errors.As(err, &broken) { // it may still write
			asked.done <- status.Errorf(codes.Unavailable, "consensus: the member does not stop: %v", err)
			return nil, err
		}
		asked.carryOut(config, r.local.Swap(nil))
	}
}

// awaitPause returns what is to be done as soon as somebody wants the member to stop; nil: ctx is done.
func (r *running) awaitPause(ctx context.Context) *pause {
	select {
	case p := <-r.pauses:
		return p
	case <-ctx.Done():
		return nil
	}
}

// paused stops the member that has served, carries out what is to be done, and has it formed again: errPaused. A member that does not stop ends the role.
func (r *running) paused(config Config, formed *store.Store, p *pause) error {
	if err := formed.Close(); err != nil {
		p.done <- status.Errorf(codes.Unavailable, "consensus: the member does not stop: %v", err)
		return err
	}
	r.status.Set(nil)
	r.usage.Set(nil)
	attempt := r.attempts.renew()
	p.carryOut(config, r.local.Swap(nil))
	r.forms <- attempt // never waits: whoever calls Form waits for this attempt, too
	return errPaused
}

// GetMember says how the local member is.
func (s *Service) GetMember(ctx context.Context, _ *consensusv1.GetMemberRequest) (*consensusv1.GetMemberResponse, error) {
	r, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	state, err := r.member(ctx)
	return &consensusv1.GetMemberResponse{Member: state}, err
}

// member is how the local member is, or was when it stopped.
func (r *running) member(ctx context.Context) (*consensusv1.MemberState, error) {
	promise, err := store.ReadPromise(r.directory)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: %v", err)
	}
	local := r.local.Load()
	switch {
	case promise != nil && promise.Phase == store.Promised, local == nil && promise.Open():
		state := promise.State()
		state.Recovery = promise.Message()
		return state, nil
	case local == nil:
		return nil, status.Error(codes.Unavailable, "consensus: the member has not read its data yet; try again")
	}
	state := local.State(ctx)
	state.Recovery, state.Damage = promise.Message(), local.Damage()
	return state, nil
}

// PromiseRecovery stops the local member for a recovery of the lost majority.
func (s *Service) PromiseRecovery(ctx context.Context, request *consensusv1.PromiseRecoveryRequest) (*consensusv1.PromiseRecoveryResponse, error) {
	r, err := s.recovering(ctx, request.GetRecoveryId())
	if err != nil {
		return nil, err
	}
	defer func() { <-r.recovering }()
	promise, err := r.promised(request.GetRecoveryId())
	switch {
	case err != nil:
		return nil, err
	case promise == nil:
		if err := r.promise(ctx, request.RecoveryId, request.GetNodeId()); err != nil {
			return nil, err
		}
	case request.GetNodeId() != "" && promise.Node != "" && promise.Node != request.NodeId:
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: this member has promised that the one of node %s becomes the only one by the recovery %s, not that of node %s: "+
			"go on with that node, or give the recovery up with --abandon", promise.Node, promise.ID, request.NodeId)
	case request.GetNodeId() != "" && promise.Node == "":
		promise.Node = request.NodeId
		if err := promise.Write(r.directory); err != nil {
			return nil, status.Errorf(codes.Internal, "consensus: %v", err)
		}
	}
	state, err := r.member(ctx)
	return &consensusv1.PromiseRecoveryResponse{Member: state}, err
}

// recovering takes one request of a recovery at a time.
func (s *Service) recovering(ctx context.Context, id string) (*running, error) {
	if err := store.CheckRecoveryID(id); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "consensus: %v", err)
	}
	r, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case r.recovering <- struct{}{}:
		return r, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// promised is the promise of a recovery; nil: there is none. Another one that is not done is an error.
func (r *running) promised(id string) (*store.Promise, error) {
	promise, err := store.ReadPromise(r.directory)
	switch {
	case err != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: %v", err)
	case promise == nil || promise.Phase == store.Done && promise.ID != id:
		return nil, nil
	case promise.ID != id:
		chosen := "no node is chosen in it yet"
		if promise.Node != "" {
			chosen = "by which the member of node " + promise.Node + " becomes the only one"
		}
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: this member has promised another recovery, %s (%s, %s): go on with that one, or give it up with --abandon", promise.ID, promise.Phase, chosen)
	}
	return promise, nil
}

// promise stops the member and keeps the promise.
func (r *running) promise(ctx context.Context, id, node string) error {
	local := r.local.Load()
	if local == nil {
		return status.Error(codes.Unavailable, "consensus: the member has not read its data yet; try again")
	}
	switch state := local.State(ctx); {
	case state.Quorum:
		return status.Errorf(codes.FailedPrecondition, "consensus: the store has a quorum, and member %s leads it: nothing is to be recovered", state.LeaderId)
	case !state.Voter:
		return status.Error(codes.FailedPrecondition, "consensus: this member does not vote yet, and cannot be the only one: recover by one that votes, or restore a snapshot")
	}
	damage := local.Damage()
	return r.stopped(ctx, func(config Config, last *store.Local) error {
		if last == nil {
			return status.Error(codes.Unavailable, "consensus: the member has stopped by itself; try again")
		}
		state := last.State(context.Background())
		state.Damage = damage
		// etcd would end the process when it finds such a page, again at every start, and there is no way back from there.
		var broken *store.DamagedError
		switch end, err := store.Inspect(ctx, config.DataDirectory, state.NodeId); {
		case err == nil && end < state.LastIndex:
			state.Damage, state.Unusable = fmt.Sprintf("its log ends with entry %d, and the member had %d: what comes after that is damaged", end, state.LastIndex), true
		case errors.As(err, &broken):
			state.Damage, state.Unusable = fmt.Sprintf("%s is damaged: %v", broken.File, broken.Cause), true
		case err != nil:
			return status.Errorf(codes.Unavailable, "consensus: %v", err)
		}
		promise := &store.Promise{ID: id, Node: node, Phase: store.Promised}
		if err := promise.Keep(state); err != nil {
			return status.Errorf(codes.Internal, "consensus: %v", err)
		}
		if err := promise.Write(config.DataDirectory); err != nil {
			return status.Errorf(codes.Internal, "consensus: %v", err)
		}
		config.Log.Warn("this member is stopped and votes for nobody, so that one survivor of the lost majority can become the only member", "recovery", id)
		return nil
	})
}

// AbandonRecovery gives a promise up.
func (s *Service) AbandonRecovery(ctx context.Context, request *consensusv1.AbandonRecoveryRequest) (*consensusv1.AbandonRecoveryResponse, error) {
	r, err := s.recovering(ctx, request.GetRecoveryId())
	if err != nil {
		return nil, err
	}
	defer func() { <-r.recovering }()
	promise, err := r.promised(request.GetRecoveryId())
	switch {
	case err != nil:
		return nil, err
	case promise == nil || promise.Phase == store.Done:
		return &consensusv1.AbandonRecoveryResponse{}, nil
	case promise.Phase != store.Promised:
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: this member is being made the only one by the recovery %s: there is no way back; run `reeve store recover-quorum` again to go on with it", promise.ID)
	}
	err = r.stopped(ctx, func(config Config, _ *store.Local) error {
		if err := store.ForgetPromise(config.DataDirectory); err != nil {
			return status.Errorf(codes.Internal, "consensus: %v", err)
		}
		config.Log.Warn("the recovery of the lost majority is given up; this member starts again", "recovery", promise.ID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &consensusv1.AbandonRecoveryResponse{}, nil
}

// RecoverQuorum makes the local member the only one, and waits until the store serves.
func (s *Service) RecoverQuorum(ctx context.Context, request *consensusv1.RecoverQuorumRequest) (*consensusv1.RecoverQuorumResponse, error) {
	r, err := s.recovering(ctx, request.GetRecoveryId())
	if err != nil {
		return nil, err
	}
	defer func() { <-r.recovering }()
	promise, err := r.promised(request.GetRecoveryId())
	switch {
	case err != nil:
		return nil, err
	case promise == nil:
		return nil, status.Error(codes.FailedPrecondition, "consensus: this member has not promised this recovery")
	case promise.Node == "" || promise.Node != promise.State().GetNodeId():
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: by the recovery %s the member of node %q becomes the only one, not that of node %s", promise.ID, promise.Node, promise.State().GetNodeId())
	case promise.State().Unusable:
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: this member cannot become the only one: %s; give the recovery up with --abandon", promise.State().Damage)
	case promise.Phase == store.Promised:
		err := r.stopped(ctx, func(config Config, _ *store.Local) error {
			promise.Phase = store.Begun
			if err := promise.Write(config.DataDirectory); err != nil {
				return status.Errorf(codes.Internal, "consensus: %v", err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := r.awaitServing(ctx); err != nil {
		return nil, err
	}
	state, err := r.member(ctx)
	return &consensusv1.RecoverQuorumResponse{Member: state}, err
}

// awaitServing waits until the member serves. What keeps it from that ends it.
func (r *running) awaitServing(ctx context.Context) error {
	attempt := r.attempts.present()
	if attempt == nil {
		return status.Error(codes.Unavailable, "consensus: the member is not started yet; try again")
	}
	select {
	case <-attempt.done:
	case <-r.attempts.ended:
		return status.Error(codes.Unavailable, "consensus: the role is stopping")
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if attempt.err != nil {
		return status.Errorf(codes.Unavailable, "consensus: the recovery goes on when the member is started again: %v", attempt.err)
	}
	return nil
}
