package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// laterField is a field number that no message of the protocol has, laterValue a value that no enumeration has.
	laterField = 3333
	laterValue = 99
)

func peerChecks() []Check {
	return []Check{
		{
			ID:    "peers.newer-core",
			needs: started("lifecycle.stop", "lifecycle.health"),
			Sentence: "A newer core sends fields that the plugin does not know in every request, a reason for Stop that it does not know, and calls what it does not serve: it answers as ever, and Unimplemented to the last. " +
				"The nodes of a cluster are upgraded one by one, and plugins are not upgraded with them.",
			run: checkNewerCore,
		},
		{
			ID:    "peers.newer-host",
			needs: started("lifecycle.stop", "resources.idle", "logging.bounded"),
			Sentence: fmt.Sprintf("A newer host tells of a membership, and of a state of the store, whose name the role does not know, with fields that it does not know: the role lives on, has not failed, and is as before within %s "+
				"of hearing what it knows.", backTime),
			run: checkNewerHost,
		},
		{
			ID:    "peers.older-host",
			needs: started("lifecycle.stop", "resources.idle", "logging.bounded"),
			Sentence: fmt.Sprintf("With a host that is older than it (SVIDs, trust and the machine's ID are Unimplemented, a directory does not say which roles are assigned, and Start says no memory and no later states), a role states its status, no later state among it, lives "+
				"on for %s within the bounds of store.patience, and stops: it does without, or says what it lacks.", spinTime),
			run: checkOlderHost,
		},
	}
}

// aged adds an unknown field to a message.
func aged[M proto.Message](message M) M {
	m := message.ProtoReflect()
	m.SetUnknown(protowire.AppendString(protowire.AppendTag(slices.Clone(m.GetUnknown()), laterField, protowire.BytesType), "of a later version"))
	return message
}

func checkNewerCore(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		configuration, err := s.configuration(of)
		if err != nil {
			return err
		}
		data, err := s.directory()
		if err != nil {
			return err
		}
		p, request, err := s.prepare(ctx, of, data, configuration)
		if err != nil {
			return err
		}
		const sent = "sent a field that it does not know"
		if err := p.callStart(ctx, aged(request)); err != nil {
			return fmt.Errorf("%s, it answers Start with %w%s", sent, err, p.lastWords())
		}
		i := s.followBy(p, request, aged(&rolev1.WatchRequest{}))
		if err := i.settle(ctx, of); err != nil {
			return fmt.Errorf("started with a field that it does not know, %w", err)
		}
		asking, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		if _, err := p.service().Describe(asking, aged(&rolev1.DescribeRequest{})); err != nil {
			return fmt.Errorf("%s, it answers Describe with %w", sent, err)
		}
		if _, err := p.service().CheckHealth(asking, aged(&rolev1.CheckHealthRequest{})); err != nil && status.Code(err) != codes.Unimplemented {
			return fmt.Errorf("%s, it answers CheckHealth with %w", sent, err)
		}
		err = p.conn.Invoke(asking, "/"+protocol+".RoleService/DoWhatNobodyKnowsYet", &rolev1.DescribeRequest{}, &rolev1.DescribeResponse{})
		if status.Code(err) != codes.Unimplemented {
			return fmt.Errorf("called what it does not serve, it answers %s, want %s%s", status.Code(err), codes.Unimplemented, p.lastWords())
		}
		if err := i.lives(); err != nil {
			return err
		}
		stopping, cancelStop := context.WithTimeout(ctx, i.grace+exitTime)
		defer cancelStop()
		if _, err := p.service().Stop(stopping, aged(&rolev1.StopRequest{
			InstanceId: request.GetInstanceId(), Grace: durationpb.New(i.grace), Reason: laterValue,
		})); err != nil {
			return fmt.Errorf("stopped for a reason that it does not know, it answers with %w%s", err, i.lastWords())
		}
		return i.exited(ctx)
	})
}

func checkNewerHost(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		host := s.standIn(of)
		i, err := s.settled(ctx, of, "")
		if err != nil {
			return err
		}
		before, _ := i.status.Get()
		restore := s.restore(host)
		defer restore()
		membership, _ := host.Membership.Get()
		later := aged(proto.CloneOf(membership))
		later.State, later.Reason = laterValue, "a state of a later version"
		host.Membership.Set(later)
		if directory, ok := host.Directory.Get(); ok {
			directory = aged(proto.CloneOf(directory))
			directory.Revision++
			for _, node := range directory.GetNodes() {
				aged(node)
				node.Roles = append(node.Roles, aged(&hostv1.DirectoryRole{Role: "of-a-later-version", State: laterValue}))
			}
			host.Directory.Set(directory)
		}
		open, stored := host.Consensus.Get()
		if stored && usesStore(of) {
			host.Consensus.Set(aged(&hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Unavailable{
				Unavailable: &hostv1.ConsensusUnavailable{Reason: laterValue, Message: "a reason of a later version"},
			}}))
			defer host.Consensus.Set(open)
		}
		if err := errors.Join(i.spins(ctx, host), i.lives()); err != nil {
			return fmt.Errorf("told what it does not know, %w", err)
		}
		restore()
		if stored && usesStore(of) {
			host.Consensus.Set(open)
		}
		if before.GetState() != rolev1.RoleState_ROLE_STATE_READY {
			return i.lives()
		}
		if _, err := i.await(ctx, backTime, func(now *rolev1.WatchResponse) bool { return now.GetState() == before.GetState() || failed(now) }); err != nil && ctx.Err() == nil {
			now, _ := i.status.Get()
			return fmt.Errorf("it was Ready before it was told what it does not know, and %s later it is %s (%s)%s", backTime, now.GetState(), now.GetReason(), i.lastWords())
		}
		return errors.Join(ctx.Err(), i.lives())
	})
}

// startOlder starts a role like a core that knows no later states.
func (s *subject) startOlder(ctx context.Context, of *rolev1.RoleManifest) (*instance, error) {
	configuration, err := s.configuration(of)
	if err != nil {
		return nil, err
	}
	data, err := s.directory()
	if err != nil {
		return nil, err
	}
	p, request, err := s.prepare(ctx, of, data, configuration)
	if err != nil {
		return nil, err
	}
	request.LaterStates = nil
	if err := p.callStart(ctx, request); err != nil {
		return nil, fmt.Errorf("with an older host, it answers Start with %w%s", err, p.lastWords())
	}
	return s.follow(p, request), nil
}

func checkOlderHost(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		host := s.standIn(of)
		host.Unimplement("IssueSVID", "WatchTrust", "SetMachineID")
		defer host.Unimplement()
		restore := s.restore(host)
		defer restore()
		if directory, ok := host.Directory.Get(); ok {
			directory = proto.CloneOf(directory)
			directory.Revision++
			for _, node := range directory.GetNodes() {
				node.Assigned = nil
			}
			host.Directory.Set(directory)
		}
		i, err := s.startOlder(ctx, of)
		if err != nil {
			return err
		}
		if _, err := i.await(ctx, statusTime, func(*rolev1.WatchResponse) bool { return true }); err != nil {
			if err := errors.Join(ctx.Err(), i.lives()); err != nil {
				return fmt.Errorf("with an older host, %w", err)
			}
			return fmt.Errorf("with an older host, it states no status within %s%s", statusTime, i.lastWords())
		}
		// resources.start judges its start.
		_, _ = i.await(ctx, statusTime, func(now *rolev1.WatchResponse) bool { return works(now) || blocked(now) || failed(now) })
		if err := i.spins(ctx, host); err != nil {
			return fmt.Errorf("with an older host, %w", err)
		}
		now, _ := i.status.Get()
		if blocked(now) {
			return errors.New("with an older host, which has not said in Start (later_states) that it knows ROLE_STATE_BLOCKED, it says that: such a host takes it for a breach of the protocol")
		}
		if !i.alive() || failed(now) && now.GetReason() == "" {
			return fmt.Errorf("with an older host, it ends or fails without a reason%s", i.lastWords())
		}
		return i.stopped(ctx)
	})
}
