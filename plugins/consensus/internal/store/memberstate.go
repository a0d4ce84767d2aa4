package store

import (
	"context"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Local is the local member while etcd runs, whether the store serves or not.
type Local struct {
	plan       Plan
	server     *etcdserver.EtcdServer
	generation Generation
}

// State is how the member is. Without a quorum it takes some election times to find that out. It may be asked after the member has stopped, too.
func (m *Local) State(ctx context.Context) *consensusv1.MemberState {
	server := m.server
	state := &consensusv1.MemberState{
		ClusterId: m.plan.ClusterID, NodeId: m.plan.NodeID, MemberId: server.MemberID().String(),
		Quorum: progresses(ctx, server), LeaderId: memberName(server.Leader()),
		Term: server.Term(), CommittedIndex: server.CommittedIndex(), AppliedIndex: server.AppliedIndex(), Revision: server.KV().Rev(),
		Generation: m.generation.Number, GenerationId: m.generation.ID,
	}
	if log, err := recentLog(server); err == nil {
		if last, err := log.LastIndex(); err == nil {
			state.LastIndex = last
			state.LastTerm, _ = log.Term(last)
		}
	}
	for _, member := range server.Cluster().Members() {
		state.Members = append(state.Members, &consensusv1.StoreMember{Id: member.ID.String(), Name: member.Name, Learner: member.IsLearner})
		state.Voter = state.Voter || member.ID == server.MemberID() && !member.IsLearner
	}
	return state
}

// Damage is why the member's data is not to be trusted, as the leader has noted; empty: it is, as far as is known. It is asked only while the member runs.
func (m *Local) Damage() (reason string) {
	for _, certain := range []bool{true, false} {
		key := []byte(peers.DamagedKey(uint64(m.server.MemberID()), certain))
		_ = guard(func() error { // which may stop meanwhile
			answer, err := m.server.KV().Range(context.Background(), key, nil, mvcc.RangeOptions{})
			if err == nil && len(answer.KVs) > 0 && reason == "" {
				reason = string(answer.KVs[0].Value)
			}
			return err
		})
	}
	return reason
}
