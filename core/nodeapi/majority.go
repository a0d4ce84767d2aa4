package nodeapi

import (
	"context"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Majority brings a store back that has lost its majority. Its errors may be statuses, such as Unavailable where no role provides the store.
type Majority interface {
	// StoreMember returns how the local member is.
	StoreMember(ctx context.Context) (*consensusv1.MemberState, error)
	// PromiseRecovery has the local member vote for nobody. An empty node: none is chosen yet.
	PromiseRecovery(ctx context.Context, recoveryID, node string) (*consensusv1.MemberState, error)
	AbandonRecovery(ctx context.Context, recoveryID string) error
	// RecoverQuorum makes the local member the only one.
	RecoverQuorum(ctx context.Context, recoveryID string) (*consensusv1.MemberState, error)
}

// GetStoreMember implements the RPC.
func (s *service) GetStoreMember(ctx context.Context, _ *nodev1.GetStoreMemberRequest) (*nodev1.GetStoreMemberResponse, error) {
	member, err := s.config.Majority.StoreMember(ctx)
	if err != nil {
		return nil, failure(err)
	}
	return &nodev1.GetStoreMemberResponse{Member: member}, nil
}

// PromiseRecovery implements the RPC.
func (s *service) PromiseRecovery(ctx context.Context, request *nodev1.PromiseRecoveryRequest) (*nodev1.PromiseRecoveryResponse, error) {
	member, err := s.config.Majority.PromiseRecovery(ctx, request.GetRecoveryId(), request.GetNodeId())
	if err != nil {
		return nil, failure(err)
	}
	return &nodev1.PromiseRecoveryResponse{Member: member}, nil
}

// AbandonRecovery implements the RPC.
func (s *service) AbandonRecovery(ctx context.Context, request *nodev1.AbandonRecoveryRequest) (*nodev1.AbandonRecoveryResponse, error) {
	if err := s.config.Majority.AbandonRecovery(ctx, request.GetRecoveryId()); err != nil {
		return nil, failure(err)
	}
	return &nodev1.AbandonRecoveryResponse{}, nil
}

// RecoverQuorum implements the RPC.
func (s *service) RecoverQuorum(ctx context.Context, request *nodev1.RecoverQuorumRequest) (*nodev1.RecoverQuorumResponse, error) {
	member, err := s.config.Majority.RecoverQuorum(ctx, request.GetRecoveryId())
	if err != nil {
		return nil, failure(err)
	}
	return &nodev1.RecoverQuorumResponse{Member: member}, nil
}
