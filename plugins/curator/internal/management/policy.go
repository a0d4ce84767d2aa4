package management

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// GetPolicy implements clusterv1.ManagementServiceServer.
func (s *Service) GetPolicy(ctx context.Context, _ *clusterv1.GetPolicyRequest) (*clusterv1.GetPolicyResponse, error) {
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	return &clusterv1.GetPolicyResponse{Policy: state.Demands()}, nil
}

// SetPolicy implements clusterv1.ManagementServiceServer.
func (s *Service) SetPolicy(ctx context.Context, request *clusterv1.SetPolicyRequest) (*clusterv1.SetPolicyResponse, error) {
	wanted := request.GetPolicy()
	if err := answer.Invalid(rules.Policy("policy", wanted)); err != nil {
		return nil, err
	}
	state, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		before := state.Demands()
		if expected := wanted.GetGeneration(); expected != 0 && expected != before.GetGeneration() {
			return nil, answer.Errorf(codes.Aborted, "the policy has generation %d, not %d: somebody changed it; read it again and decide anew",
				before.GetGeneration(), expected)
		}
		sources := rules.CUKSources(wanted.GetCukSources())
		// Who does not name a recovery key means no other one: without it no snapshot can be sealed.
		recipient := cmp.Or(wanted.GetRecoveryRecipient(), before.GetRecoveryRecipient())
		if wanted.GetSnapshots() != nil && recipient == "" {
			return nil, answer.Errorf(codes.FailedPrecondition, "snapshots cannot be taken by schedule: the cluster knows no recovery key to which they would be sealed: set it first with "+
				"`reeve policy set recovery-recipient=age1…` (`reeve recovery-key new FILE` makes one)")
		}
		if before.GetIsolation() == wanted.GetIsolation() && slices.Equal(before.GetCukSources(), sources) && rules.ReportsRequired(before) == rules.ReportsRequired(wanted) &&
			before.GetRecoveryRecipient() == recipient && proto.Equal(before.GetSnapshots(), wanted.GetSnapshots()) {
			return nil, nil
		}
		since := before.GetSnapshotsSince()
		switch {
		case wanted.GetSnapshots() == nil:
			since = nil
		case !proto.Equal(before.GetSnapshots(), wanted.GetSnapshots()):
			since = timestamppb.New(s.config.Now())
		}
		change := &store.Change{Policy: &clusterv1.ClusterPolicy{
			Isolation: wanted.GetIsolation(), CukSources: sources, Conformance: wanted.GetConformance(), RecoveryRecipient: recipient,
			Snapshots: wanted.GetSnapshots(), SnapshotsSince: since, Generation: before.GetGeneration() + 1,
		}}
		return change, proven(state, state.With(change))
	})
	if err != nil {
		return nil, err
	}
	policy := state.Demands()
	isolation := strings.ToLower(strings.TrimPrefix(policy.GetIsolation().String(), "ISOLATION_POLICY_"))
	s.made(ctx, request.GetDryRun(), "policy set", "isolation", isolation, "cuk_sources", cmp.Or(strings.Join(policy.GetCukSources(), ","), "all"),
		"reports_required", rules.ReportsRequired(policy), "recovery_recipient", policy.GetRecoveryRecipient(), "snapshots_every", every(policy.GetSnapshots()), "snapshots_kept", policy.GetSnapshots().GetKeep(), "generation", policy.GetGeneration())
	return &clusterv1.SetPolicyResponse{Policy: policy}, nil
}

// every is how often snapshots are taken, for people.
func every(schedule *clusterv1.SnapshotSchedule) string {
	if schedule == nil {
		return "never"
	}
	return (time.Duration(schedule.GetIntervalSeconds()) * time.Second).String()
}
