package operate

import (
	"context"
	"time"

	"github.com/reeveproject/reeve/core/roles"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// majorityTimeout bounds each step of the recovery of a lost majority. A member that becomes the only one reads its log and its database, twice.
const majorityTimeout = 5 * time.Minute

func (r *Room) consensus() (consensusv1.ConsensusServiceClient, error) {
	provider, err := r.provider(roles.CapabilityConsensus, "the consensus store")
	if err != nil {
		return nil, err
	}
	return consensusv1.NewConsensusServiceClient(provider.Conn), nil
}

// StoreMember returns how the local member of the store is, also while the store has no quorum.
func (r *Room) StoreMember(ctx context.Context) (*consensusv1.MemberState, error) {
	client, err := r.consensus()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, majorityTimeout)
	defer cancel()
	response, err := client.GetMember(ctx, &consensusv1.GetMemberRequest{})
	return response.GetMember(), err
}

// PromiseRecovery has the local member stop and vote for nobody. An empty node: none is chosen yet.
func (r *Room) PromiseRecovery(ctx context.Context, recoveryID, node string) (*consensusv1.MemberState, error) {
	client, err := r.consensus()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, majorityTimeout)
	defer cancel()
	response, err := client.PromiseRecovery(ctx, &consensusv1.PromiseRecoveryRequest{RecoveryId: recoveryID, NodeId: node})
	return response.GetMember(), err
}

// AbandonRecovery gives such a promise up.
func (r *Room) AbandonRecovery(ctx context.Context, recoveryID string) error {
	client, err := r.consensus()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, majorityTimeout)
	defer cancel()
	_, err = client.AbandonRecovery(ctx, &consensusv1.AbandonRecoveryRequest{RecoveryId: recoveryID})
	return err
}

// RecoverQuorum makes the local member the only one of its store.
func (r *Room) RecoverQuorum(ctx context.Context, recoveryID string) (*consensusv1.MemberState, error) {
	client, err := r.consensus()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, majorityTimeout)
	defer cancel()
	response, err := client.RecoverQuorum(ctx, &consensusv1.RecoverQuorumRequest{RecoveryId: recoveryID})
	return response.GetMember(), err
}
