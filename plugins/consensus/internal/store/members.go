package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// Peer is a member of the store, as the local one knows it.
type Peer struct {
	ID uint64
	// Node is where it runs.
	Node    string
	Learner bool
	URLs    []string
}

// Listens reports whether the others can reach it.
func (p Peer) Listens() bool {
	return slices.ContainsFunc(p.URLs, func(url string) bool { return strings.HasPrefix(url, "https://") })
}

// Peers are the members of the store, sorted by node.
func (s *Store) Peers() []Peer {
	var all []Peer
	for _, member := range s.etcd.Server.Cluster().Members() {
		all = append(all, Peer{ID: uint64(member.ID), Node: member.Name, Learner: member.IsLearner, URLs: member.PeerURLs})
	}
	slices.SortFunc(all, func(a, b Peer) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// Learner reports whether the local member does not vote. One that was removed, whom etcd must not be asked about that, does not.
func (s *Store) Learner() bool {
	own := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID())
	return own == nil || own.IsLearner
}

// ClusterID is that of the cluster whose store it is.
func (s *Store) ClusterID() string { return s.plan.ClusterID }

// NodeID is that of the node on which the local member runs.
func (s *Store) NodeID() string { return s.plan.NodeID }

// Removed reports whether a member was removed from the store.
func (s *Store) Removed(member uint64) bool { return s.etcd.Server.IsIDRemoved(member) }

// closing reports whether etcd closes its database, or is about to, which it does a second after it has learned that the local member was removed. Who reads it
// then ends the process.
func (s *Store) closing() bool {
	select {
	case <-s.etcd.Server.StoppingNotify():
		return true
	default:
		return s.Removed(uint64(s.etcd.Server.MemberID()))
	}
}

// state is how the local member is.
func (s *Store) state() peers.State {
	server := s.etcd.Server
	state := peers.State{Member: server.MemberID().String(), Leader: memberName(server.Leader()), Applied: server.AppliedIndex(), Finished: s.finished.Load()}
	s.reach.tell(&state, time.Now())
	return state
}

// otherPeers are the other members.
func (s *Store) otherPeers() []Peer {
	own := uint64(s.etcd.Server.MemberID())
	return slices.DeleteFunc(s.Peers(), func(peer Peer) bool { return peer.ID == own })
}

// answerBound is how long a member may take to say how it is.
const answerBound = time.Second

// Ask asks the members how they are, and returns what those said that answered.
func (s *Store) Ask(ctx context.Context) map[uint64]peers.State {
	own := uint64(s.etcd.Server.MemberID())
	answers := map[uint64]peers.State{own: s.state()}
	others := s.otherPeers()
	if len(others) == 0 {
		return answers
	}
	credentials, err := s.files().Load()
	if err != nil {
		s.log.Error("cannot ask the other members of the store how they are", "error", err)
		return answers
	}
	path := statePath
	if s.reach.misses(others) {
		path += "?" + missingQuery
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, peer := range others {
		asking.Go(func() {
			client := peers.Client(credentials, peer.ID, answerBound)
			for _, url := range peer.URLs {
				if state, err := askOne(ctx, client, url+path); err == nil && state.Member == peers.FormatMember(peer.ID) {
					mu.Lock()
					answers[peer.ID] = state
					mu.Unlock()
				}
			}
		})
	}
	asking.Wait()
	if ctx.Err() == nil {
		s.reach.note(others, answers, time.Now())
	}
	return answers
}

func askOne(ctx context.Context, client *http.Client, url string) (peers.State, error) {
	content, _, err := getFrom(ctx, client, url)
	if err != nil {
		return peers.State{}, err
	}
	return peers.ParseState(content)
}

// maxAnswer bounds what another member is listened to.
const maxAnswer = 1 << 16

// getFrom asks another member for something.
func getFrom(ctx context.Context, client *http.Client, url string) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("%s answers %s", url, answer.Status)
	}
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	return content, answer.Header, err
}

// Expect has the member listen for the others from now on, although there are none yet.
func (s *Store) Expect() {
	if s.peering.wanted.Swap(true) {
		return
	}
	select {
	case s.peering.expected <- struct{}{}:
	default: // it is about to be looked
	}
}

// takeStep changes the members or who leads them, unless the context has ended. etcd may accept a change all the same when nobody waits for it any more: a member that stops would have
// found nobody to hand its leadership over to, and would then wait for another voter to which nothing connects it.
func takeStep(ctx context.Context, step checkpoint.Step, take func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return checkpoint.Around(step, take)
}

// AddLearner adds the member of a node that has prepared it. One that is there already is no error.
func (s *Store) AddLearner(ctx context.Context, id uint64, node, address string) error {
	err := takeStep(ctx, steps.AddLearner, func() error {
		_, err := s.etcd.Server.AddMember(Root(ctx), membership.Member{
			ID:             types.ID(id),
			RaftAttributes: membership.RaftAttributes{PeerURLs: []string{peers.URL(address)}, IsLearner: true},
			Attributes:     membership.Attributes{Name: node},
		})
		return err
	})
	if errors.Is(err, membership.ErrIDExists) {
		return nil
	}
	return err
}

// ErrBehind says that a learner has not taken enough over to vote.
var ErrBehind = errors.New("the member has not taken over enough of the store's data")

// Promote has a learner vote. The local member must be the leader.
func (s *Store) Promote(ctx context.Context, id uint64) error {
	err := takeStep(ctx, steps.Promote, func() error {
		_, err := s.etcd.Server.PromoteMember(Root(ctx), id)
		return err
	})
	switch {
	case errors.Is(err, servererrors.ErrLearnerNotReady):
		return ErrBehind
	case errors.Is(err, membership.ErrMemberNotLearner):
		return nil
	}
	return err
}

// RemoveMember removes a member for good. One that is gone is no error.
func (s *Store) RemoveMember(ctx context.Context, id uint64) error {
	err := takeStep(ctx, steps.RemoveMember, func() error {
		_, err := s.etcd.Server.RemoveMember(Root(ctx), id)
		return err
	})
	if errors.Is(err, membership.ErrIDRemoved) || errors.Is(err, membership.ErrIDNotFound) {
		return nil
	}
	return err
}

// MoveLeader hands the leadership over to another voter.
func (s *Store) MoveLeader(ctx context.Context, to uint64) error {
	return takeStep(ctx, steps.HandOver, func() error { return s.etcd.Server.MoveLeader(ctx, uint64(s.etcd.Server.MemberID()), to) })
}

// Leads reports whether the local member is the leader at this moment.
func (s *Store) Leads() bool { return s.etcd.Server.Leader() == s.etcd.Server.MemberID() }

// Applied is how far the local member has come.
func (s *Store) Applied() uint64 { return s.etcd.Server.AppliedIndex() }
