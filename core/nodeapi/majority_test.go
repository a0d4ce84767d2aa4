package nodeapi_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// majority notes what the store is told.
type majority struct{ a *api }

func (m majority) StoreMember(context.Context) (*consensusv1.MemberState, error) {
	return &consensusv1.MemberState{Term: 1}, m.a.note("member")
}

func (m majority) PromiseRecovery(_ context.Context, id, node string) (*consensusv1.MemberState, error) {
	return &consensusv1.MemberState{Term: 2}, m.a.note("promise " + id + " " + node)
}

func (m majority) AbandonRecovery(_ context.Context, id string) error {
	return m.a.note("abandon " + id)
}

func (m majority) RecoverQuorum(_ context.Context, id string) (*consensusv1.MemberState, error) {
	return &consensusv1.MemberState{Term: 3}, m.a.note("recover " + id)
}

func TestMajority(t *testing.T) {
	a := serve(t)
	client, ctx := a.client(), a.context()
	calls := []func() (uint64, error){
		func() (uint64, error) {
			answer, err := client.GetStoreMember(ctx, &nodev1.GetStoreMemberRequest{})
			return answer.GetMember().GetTerm(), err
		},
		func() (uint64, error) {
			answer, err := client.PromiseRecovery(ctx, &nodev1.PromiseRecoveryRequest{RecoveryId: "r", NodeId: "reeve-2"})
			return answer.GetMember().GetTerm(), err
		},
		func() (uint64, error) {
			answer, err := client.RecoverQuorum(ctx, &nodev1.RecoverQuorumRequest{RecoveryId: "r"})
			return answer.GetMember().GetTerm(), err
		},
		func() (uint64, error) {
			_, err := client.AbandonRecovery(ctx, &nodev1.AbandonRecoveryRequest{RecoveryId: "r"})
			return 4, err
		},
	}
	for n, call := range calls {
		if term, err := call(); err != nil || term != uint64(n+1) {
			t.Errorf("call %d: %d, %v", n, term, err)
		}
	}
	if got, want := a.wasDone(), []string{"member", "promise r reeve-2", "recover r", "abandon r"}; !slices.Equal(got, want) {
		t.Errorf("the node was told %q, want %q", got, want)
	}
	for fails, code := range map[error]codes.Code{status.Error(codes.FailedPrecondition, "no"): codes.FailedPrecondition, errors.New("no"): codes.Internal} {
		a.mu.Lock()
		a.fails = fails
		a.mu.Unlock()
		for n, call := range calls {
			if _, err := call(); status.Code(err) != code {
				t.Errorf("call %d: %v", n, err)
			}
		}
	}
}
