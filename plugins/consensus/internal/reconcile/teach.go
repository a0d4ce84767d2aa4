package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// learning is how far the learner has come.
type learning struct {
	id      uint64
	applied uint64
	since   time.Time // when it was last seen to make progress
	target  uint64    // what it must have applied to vote; 0: not known yet
}

// teach sees to the learner: it votes as soon as it has caught up, and goes if it is not wanted or makes no progress.
func (m *Members) teach(ctx context.Context, p *picture, peer store.Peer) error {
	now := time.Now()
	state, answers := p.answers[peer.ID]
	if m.learner.id != peer.ID {
		m.learner = learning{id: peer.ID, since: now}
	}
	if !p.keeps(peer.ID, peer.Node) {
		return m.drop(ctx, p, peer, "")
	}
	if p.distrusted[peer.ID] {
		// Its vote could keep the others from having a majority.
		return m.drop(ctx, p, peer, "the data that its member took over differs from that of the others: a new one takes its place")
	}
	if answers && state.Applied > m.learner.applied {
		m.learner.applied, m.learner.since = state.Applied, now
	}
	if m.learner.target == 0 && answers {
		m.learner.target = m.Store.Applied()
	}
	voters, silent := p.voters(0)
	caughtUp := answers && p.follows(peer) && m.learner.applied >= m.learner.target
	// One that still has to ask for its place to start must not vote: without it there may be no quorum, and so nobody to answer.
	ready := caughtUp && state.Finished
	deaf := p.deaf(peer)
	switch {
	case ready && len(deaf) > 0:
		// It would count as one of those that are needed, and be of no use to them.
		p.tell(peer.Node, fmt.Sprintf("its member has taken over the data, but cannot vote before it answers the members of %s at %s: open the way from these nodes to that address",
			strings.Join(deaf, ", "), strings.Join(peer.URLs, ", ")), false)
		m.learner.since = now
		return nil
	case ready && len(voters)-len(silent)+1 > (len(voters)+1)/2:
		m.Before("promote")
		err := m.Store.Promote(ctx, peer.ID)
		if err == nil {
			m.Log.Info("a member of the store votes from now on", "node", peer.Node, "member", peers.FormatMember(peer.ID))
			return errStepped
		}
		if !errors.Is(err, store.ErrBehind) {
			return fmt.Errorf("promote the member of node %s: %w", peer.Node, err)
		}
		p.tell(peer.Node, "its member takes over the data of the store", false)
	case ready:
		p.tell(peer.Node, fmt.Sprintf("its member has taken over the data, but cannot vote before the members of %s answer and have caught up: start these nodes, or take them out of the store",
			strings.Join(silent, ", ")), false)
		m.learner.since = now
		return nil
	case caughtUp:
		p.tell(peer.Node, "its member has taken over the data of the store, and is about to start to serve", false)
	case answers:
		p.tell(peer.Node, "its member takes over the data of the store", false)
	default:
		p.tell(peer.Node, "its member was added, and is waited for: it does not answer yet at "+strings.Join(peer.URLs, ", "), false)
	}
	if now.Sub(m.learner.since) <= m.StallBound {
		return nil
	}
	reason := fmt.Sprintf("its member was given up, since it did not answer for %s at %s: see that the other members reach this address; the role %s",
		m.StallBound, strings.Join(peer.URLs, ", "), "asks again when it runs")
	if answers {
		reason = fmt.Sprintf("its member was given up, since it took nothing over for %s: look at the log of the role on this node; it asks again when it runs", m.StallBound)
	}
	return m.drop(ctx, p, peer, reason)
}

// drop removes a learner, which nobody misses.
func (m *Members) drop(ctx context.Context, p *picture, peer store.Peer, reason string) error {
	if reason != "" {
		m.Before("give up")
		err := checkpoint.Around(steps.GiveUp, func() error {
			announced := clientv3.Compare(clientv3.ModRevision(peers.AnnouncementKey(peer.Node)), "=", p.announcedAt[peer.Node])
			_, err := m.commit(ctx, p, []clientv3.Cmp{announced}, clientv3.OpPut(peers.GivenUpKey(peer.Node), reason), clientv3.OpDelete(peers.AnnouncementKey(peer.Node)))
			return err
		})
		if errors.Is(err, errStepped) {
			return err
		}
		if err != nil {
			return fmt.Errorf("note that the member of node %s is given up: %w", peer.Node, err)
		}
	}
	return m.expel(ctx, p, peer)
}
