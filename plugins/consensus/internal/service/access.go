package service

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// wait returns what Run shares, as soon as it runs.
func (s *Service) wait(ctx context.Context) (*running, error) {
	r, err := s.running.Wait(ctx, func(*running) bool { return true })
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return r, nil
}

// SetAccess replaces the set of instances that may use the store.
func (s *Service) SetAccess(ctx context.Context, request *consensusv1.SetAccessRequest) (*consensusv1.SetAccessResponse, error) {
	r, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	switch err := r.door.Set(request); {
	case errors.Is(err, door.ErrStale):
		return nil, status.Errorf(codes.Aborted, "consensus: %v", err)
	case err != nil:
		return nil, status.Errorf(codes.InvalidArgument, "consensus: %v", err)
	}
	return &consensusv1.SetAccessResponse{}, nil
}

// WatchStore streams the state of the store.
func (s *Service) WatchStore(_ *consensusv1.WatchStoreRequest, stream grpc.ServerStreamingServer[consensusv1.WatchStoreResponse]) error {
	ctx := stream.Context()
	r, err := s.wait(ctx)
	if err != nil {
		return err
	}
	stores, doors, users, gones := r.status.Watch(), r.door.State().Watch(), r.usage.Watch(), r.gone.Watch()
	gone := ""
	var current *store.Status
	var access door.State
	var usage []*consensusv1.UserUsage
	var sent *consensusv1.StoreStatus
	for {
		select {
		case <-stores.Changed():
			current, err = stores.Next(ctx)
		case <-doors.Changed():
			access, err = doors.Next(ctx)
		case <-users.Changed():
			usage, err = users.Next(ctx)
		case <-gones.Changed():
			gone, err = gones.Next(ctx)
		case <-r.attempts.ended:
			return status.Error(codes.Unavailable, "consensus: the role is stopping")
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return status.FromContextError(err).Err()
		}
		next := message(current, access, usage, gone)
		if sent != nil && proto.Equal(next, sent) {
			continue
		}
		if err := stream.Send(&consensusv1.WatchStoreResponse{Status: next}); err != nil {
			return err
		}
		sent = next
	}
}

func message(current *store.Status, access door.State, usage []*consensusv1.UserUsage, gone string) *consensusv1.StoreStatus {
	m := &consensusv1.StoreStatus{CoreStart: access.CoreStart, AccessNumber: access.Number, Access: access.Access, Usage: usage}
	if current == nil {
		m.Problem = gone
		return m
	}
	m.Formed = true
	m.ClusterId = current.ClusterID
	m.MemberId = current.MemberID
	m.LeaderId = current.LeaderID
	m.Quorum = current.Quorum()
	m.Voter = current.Voter
	m.DatabaseSize = current.DatabaseSize
	m.DatabaseInUse = current.InUse
	m.LeaderChanges = current.LeaderChanges
	m.Quota = current.Quota
	m.Generation, m.GenerationId = current.Generation.Number, current.Generation.ID
	m.Problem = cmp.Or(current.Problem(), current.Threat())
	for _, member := range current.Members {
		told := &consensusv1.StoreMember{Id: member.ID, Name: member.Name, Learner: member.Learner, Silent: slices.Contains(current.Silent, member.Name)}
		for _, cut := range current.Cuts {
			if cut.From == member.Name {
				told.Unreached = append(told.Unreached, cut.To)
			}
		}
		for _, damage := range current.Damages {
			if damage.MemberID == member.ID {
				told.Damage = damage.Reason
			}
		}
		m.Members = append(m.Members, told)
	}
	return m
}
