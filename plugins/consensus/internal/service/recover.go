package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Recover gives a store that is full its room back, as far as its data lets it.
func (s *Service) Recover(ctx context.Context, _ *consensusv1.RecoverRequest) (*consensusv1.RecoverResponse, error) {
	r, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	formed := r.store.Load()
	if formed == nil {
		return nil, status.Error(codes.Unavailable, "consensus: the store is not there yet; try again when the role is Ready or Degraded")
	}
	recovered, err := formed.Recover(ctx)
	var full *store.NoRoomError
	switch {
	case errors.As(err, &full), errors.Is(err, store.ErrCorrupt):
		return nil, status.Errorf(codes.FailedPrecondition, "consensus: %v", err)
	case errors.Is(err, store.ErrNoQuorum), errors.Is(err, store.ErrCopying):
		return nil, status.Errorf(codes.Unavailable, "consensus: %v", err)
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Errorf(codes.Internal, "consensus: make room in the store: %v", err)
	}
	return &consensusv1.RecoverResponse{SizeBefore: recovered.Before, SizeAfter: recovered.After}, nil
}

// CheckHealth says whether the role is able to work, as far as a new process would be any better; see store.Store.CheckHealth. Before the store is
// formed there is nothing that could hang: reading much data from a slow disk takes as long as it takes.
func (s *Service) CheckHealth(context.Context) error {
	r, ok := s.running.Get()
	if !ok {
		return nil
	}
	if formed := r.store.Load(); formed != nil {
		return formed.CheckHealth()
	}
	return nil
}
