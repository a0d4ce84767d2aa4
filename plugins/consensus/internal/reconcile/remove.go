package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// noteBound is how long the removal of a voter that somebody has noted holds up that of another one: by then, no call of a former leader is under way any more.
const noteBound = 2 * stepBound

// remove removes the first voter that is not wanted, if a majority of those who stay is good. One whose removal was noted comes first.
func (m *Members) remove(ctx context.Context, p *picture) (busy bool, err error) {
	var first *store.Peer
	for n, peer := range p.peers {
		if p.keeps(peer.ID, peer.Node) {
			continue
		}
		stay, silent := p.voters(peer.ID)
		all, allSilent := p.voters(0)
		switch {
		case len(stay) == 0:
			p.tell(peer.Node, "cannot be taken out: its member is the last one, which holds all of the cluster's data; have another node join the store first, or restore the cluster from a snapshot", true)
			continue
		case !p.measured:
			p.tell(peer.Node, "its member is about to be removed: it is looked whether the others keep up", false)
			busy = true
			continue
		case 2*len(silent) >= len(stay):
			p.tell(peer.Node, fmt.Sprintf("cannot be taken out: without its member the store would have no quorum, since of the %d left those of %s do not answer or are far behind, or damaged; "+
				"start these nodes, wait until they have caught up, or take them out first", len(stay), strings.Join(silent, ", ")), true)
			continue
		case 2*len(allSilent) >= len(all):
			p.tell(peer.Node, fmt.Sprintf("cannot be taken out: the members of %s do not answer or are far behind, or damaged; "+
				"start these nodes, and wait until they have caught up", strings.Join(allSilent, ", ")), true)
			continue
		}
		// The others may hear the local member, and not each other.
		if peer.ID == p.own.ID && len(p.heirs(stay)) == 0 {
			p.tell(peer.Node, fmt.Sprintf("cannot be taken out: without its member the store would have no quorum, since the members of %s do not reach each other; "+
				"open the way between these nodes first", p.apart(stay)), true)
			continue
		}
		// The store grows before it shrinks: otherwise a swap of all members would leave only one in between. A member that does not work, or whose node was deleted, is
		// removed at once.
		if coming := m.coming(p); len(coming) > 0 && p.good(peer) && !m.Gone(peer.Node) && len(stay) < min(len(all), len(p.desired)) {
			p.tell(peer.Node, fmt.Sprintf("its member is removed as soon as that of %s votes in its place, or has failed to do so within %s", strings.Join(coming, " or "), m.StallBound), false)
			busy = true
			continue
		}
		p.tell(peer.Node, p.leaving(peer.Node), false)
		_, noted := p.removed[peer.ID]
		if first == nil || noted || first.ID == p.own.ID { // the leader goes last
			if first = &p.peers[n]; noted {
				break
			}
		}
	}
	if first == nil {
		return busy, nil
	}
	if other := m.underWay(p, first.ID); other != nil {
		p.tell(first.Node, fmt.Sprintf("its member is removed as soon as it is known what becomes of that of %s, whose removal was begun", other.Node), false)
		return true, nil
	}
	if first.ID != p.own.ID {
		return true, m.expel(ctx, p, *first)
	}
	stay, _ := p.voters(p.own.ID)
	return true, m.hand(ctx, p, p.heirs(stay))
}

// leaving says that a member is being removed.
func (p *picture) leaving(node string) string {
	if p.wants(node) {
		return "its member is being removed, for a new one of the node to join in its place"
	}
	return "its member is being removed"
}

// hand moves the leadership to the one of some heirs that stays and has come furthest. It removes the former leader, if that is to go.
func (m *Members) hand(ctx context.Context, p *picture, heirs []store.Peer) error {
	var to *store.Peer
	for n, peer := range heirs {
		if to == nil || p.keeps(peer.ID, peer.Node) && !p.keeps(to.ID, to.Node) || p.keeps(peer.ID, peer.Node) == p.keeps(to.ID, to.Node) && p.answers[peer.ID].Applied > p.answers[to.ID].Applied {
			to = &heirs[n]
		}
	}
	if to == nil {
		return fmt.Errorf("no other member answers that could lead the store in place of that of node %s", p.own.Node)
	}
	m.Before("hand over")
	if err := m.Store.MoveLeader(ctx, to.ID); err != nil {
		return fmt.Errorf("hand the leadership over to the member of node %s: %w", to.Node, err)
	}
	m.Log.Info("handed the leadership of the store over, since the local member is to be removed, or is damaged", "to", to.Node)
	return errStepped
}

// underWay is another voter whose removal was noted, maybe by a former leader that is still about to carry it out; nil: there is none.
func (m *Members) underWay(p *picture, but uint64) *store.Peer {
	for n, peer := range p.peers {
		if since, ok := m.noted[peer.ID]; ok && peer.ID != but && !peer.Learner && !p.keeps(peer.ID, peer.Node) && time.Since(since) < noteBound {
			return &p.peers[n]
		}
	}
	return nil
}

// expel removes a member. Before, it is noted that this is not done until nobody has anything to do with it any more. The note is also how it is found out whether anything
// has changed since it was looked: a quorum has it, so all that was decided before it is known here then. What has changed is looked at anew.
func (m *Members) expel(ctx context.Context, p *picture, peer store.Peer) error {
	m.Before("note removal")
	checkpoint.Before(steps.NoteRemoval)
	answer, err := m.commit(ctx, p, nil, clientv3.OpPut(peers.RemovedKey(peer.ID), peer.Node), clientv3.OpGet(peers.RemovedPrefix, clientv3.WithPrefix()))
	if errors.Is(err, errStepped) {
		return err
	}
	if err != nil {
		return fmt.Errorf("note the removal of the member of node %s: %w", peer.Node, err)
	}
	checkpoint.After(steps.NoteRemoval)
	m.Before("remove")
	if !m.Store.Leads() || !p.is(m.Store.Peers()) || !p.hasNoted(answer.Responses[1].GetResponseRange().GetKvs(), peer.ID) {
		m.Log.Info("gave up a step: the members of the store have changed meanwhile", "node", peer.Node, "member", peers.FormatMember(peer.ID))
		return errStepped
	}
	if err := m.Store.RemoveMember(ctx, peer.ID); err != nil {
		return fmt.Errorf("remove the member of node %s: %w", peer.Node, err)
	}
	m.Log.Info("removed a member from the store", "node", peer.Node, "member", peers.FormatMember(peer.ID))
	return errStepped
}

// is reports whether the members are still those of the picture, with the same votes.
func (p *picture) is(now []store.Peer) bool {
	return slices.EqualFunc(p.peers, now, func(a, b store.Peer) bool { return a.ID == b.ID && a.Learner == b.Learner })
}

// hasNoted reports whether the notes of removals, besides that of one member, are still those of the picture.
func (p *picture) hasNoted(found []*mvccpb.KeyValue, but uint64) bool {
	others := 0
	for _, one := range found {
		id, err := peers.ParseMember(strings.TrimPrefix(string(one.Key), peers.RemovedPrefix))
		if err != nil || id == but {
			continue
		}
		if _, ok := p.removed[id]; !ok {
			return false
		}
		others++
	}
	known := len(p.removed)
	if _, ok := p.removed[but]; ok {
		known--
	}
	return others == known
}

// finishRemovals ends each removal of which all members have said that nothing is left of the removed one with them.
func (m *Members) finishRemovals(ctx context.Context, p *picture) (done bool, err error) {
	for id, node := range p.removed {
		var missing []string
		for _, peer := range p.peers {
			if !slices.Contains(p.absent[id], peer.ID) {
				missing = append(missing, peer.Node)
			}
		}
		there := slices.ContainsFunc(p.peers, func(peer store.Peer) bool { return peer.ID == id })
		switch {
		case there && !p.keeps(id, node):
			continue // noted, and not removed yet
		case !there && len(missing) > 0:
			if p.of(node) == nil {
				p.tell(node, fmt.Sprintf("its member was removed; that the members of %s have closed their connections with it is waited for", strings.Join(missing, ", ")), false)
			}
			continue
		}
		m.Before("finish removal")
		err := checkpoint.Around(steps.FinishRemoval, func() error {
			noted := clientv3.Compare(clientv3.ModRevision(peers.RemovedKey(id)), "=", p.removedAt[id])
			operations := []clientv3.Op{clientv3.OpDelete(peers.RemovedKey(id)), clientv3.OpDelete(peers.AbsentOf(id), clientv3.WithPrefix())}
			if !there { // nothing reaches it any more, so it does not learn of a CA that is made from now on
				operations = append(operations, clientv3.OpDelete(peers.FollowedKey(id)), clientv3.OpPut(peers.ReplaceKey, peers.FormatMember(id)))
			}
			_, err := m.commit(ctx, p, []clientv3.Cmp{noted}, operations...)
			return err
		})
		if errors.Is(err, errStepped) {
			return true, err
		}
		if err != nil {
			return false, fmt.Errorf("note that the removal of the member of node %s is done: %w", node, err)
		}
		delete(p.removed, id)
		return true, errStepped
	}
	return false, nil
}
