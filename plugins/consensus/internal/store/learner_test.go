package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// placed has a member listen at a free address.
func placed(t *testing.T, config store.Config) (store.Config, *event.Value[store.Place]) {
	t.Helper()
	place := &event.Value[store.Place]{}
	place.Set(store.Place{Listen: storetest.Free(t), Host: storetest.Host()})
	config.Place = place
	return config, place
}

// changeMembers changes who the members are, as the reconciler does: again and again, since raft drops a change, and tells nobody, while it applies another one.
func changeMembers(t *testing.T, what string, change func(context.Context) error) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("%s: the last answer: %v", what, err)
		}
	}()
	storetest.Eventually(t, what, func() bool {
		ctx, cancel := context.WithTimeout(storetest.Context(t), time.Second)
		defer cancel()
		err = change(ctx)
		return err == nil
	})
}

// TestWhoHasEndedChangesNoMembers: of a change for which nobody waits any more etcd takes some.
func TestWhoHasEndedChangesNoMembers(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ended, end := context.WithCancel(storetest.Context(t))
	end()
	for id := range uint64(20) {
		if err := s.AddLearner(ended, 0xab+id, "reeve-2", "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if err := s.Server().LinearizableReadNotify(storetest.Context(t)); err != nil { // what was taken is carried out by now
		t.Fatal(err)
	}
	if members := s.Peers(); len(members) != 1 {
		t.Errorf("%d members: %v", len(members), members)
	}
}

// TestCutOffLearnerLearnsOfItsRemoval has a learner, which goes on taking the leader for one that it does not hear of any more, ask the others.
func TestCutOffLearnerLearnsOfItsRemoval(t *testing.T) {
	config, _ := placed(t, storetest.Config(t, storetest.Directory(t)))
	voter, stop := storetest.OpenWith(t, config, storetest.Plan)
	var learner uint64
	var given *consensusv1.JoinResponse
	var silent, removed atomic.Bool
	joining, place := placed(t, storetest.Config(t, storetest.Directory(t)))
	joining.Join = func(ctx context.Context, request *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
		switch {
		case removed.Load():
			return nil, store.ErrRemoved
		case given != nil && !silent.Load(): // asked again, as by one that could not take the data over in time
			return given, nil
		case learner != 0:
			return nil, fmt.Errorf("%w: nobody answers", store.ErrWaiting)
		}
		var err error
		if learner, err = peers.ParseMember(request.Attempt); err != nil {
			return nil, err
		}
		key, err := identity.RequestedKey(request.CertificateRequest)
		if err != nil {
			return nil, err
		}
		voter.Expect()
		storetest.Eventually(t, "the voter listens", func() bool { return voter.Peers()[0].Listens() })
		changeMembers(t, "the learner is added", func(ctx context.Context) error { return voter.AddLearner(ctx, learner, "reeve-2", request.PeerAddress) })
		authority, err := voter.Authority()
		if err != nil {
			return nil, err
		}
		certificate, err := authority.Issue(key, peers.Name{Cluster: "cluster-a", Node: "reeve-2", Member: learner})
		if err != nil {
			return nil, err
		}
		answer := &consensusv1.JoinResponse{MemberId: request.Attempt, Certificate: [][]byte{certificate}, CaCertificates: authority.Certificates()}
		for _, peer := range voter.Peers() {
			answer.Members = append(answer.Members, &consensusv1.StorePeer{MemberId: peers.FormatMember(peer.ID), NodeId: peer.Node, PeerUrls: peer.URLs, Learner: peer.Learner})
		}
		given = answer
		return answer, nil
	}
	var s *store.Store
	storetest.Eventually(t, "the learner has joined", func() (joined bool) {
		var err error
		s, err = store.Open(storetest.Context(t), joining, store.Plan{ClusterID: "cluster-a", NodeID: "reeve-2", ClusterUser: "curator", Join: true})
		if err != nil && !errors.Is(err, store.ErrWaiting) {
			t.Fatal(err)
		}
		return err == nil
	})
	defer s.Close()
	silent.Store(true)
	if !s.Learner() {
		t.Fatal("it votes")
	}

	// Neither finds the other any more: both listen elsewhere.
	stop()
	place.Set(store.Place{Listen: storetest.Free(t), Host: storetest.Host()})
	config, _ = placed(t, config)
	plan := storetest.Plan
	plan.New = false
	voter, _ = storetest.OpenWith(t, config, plan)
	changeMembers(t, "the learner is removed", func(ctx context.Context) error { return voter.RemoveMember(ctx, learner) })
	removed.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Bound)
	defer cancel()
	if err := s.Run(ctx); !errors.Is(err, store.ErrRemoved) {
		t.Errorf("the removed learner ran on: %v", err)
	}
}
