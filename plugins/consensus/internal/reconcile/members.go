package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// DefaultStallBound is how long a learner may make no progress before it is given up: longer than a restart of its node.
	DefaultStallBound = 2 * time.Minute
	// busyInterval is the pause between two steps while one is under way, idleInterval while all is as it should be: how soon it is told that a member does not answer.
	busyInterval = 100 * time.Millisecond
	idleInterval = 2 * time.Second
	// stepBound is how long one step may take.
	stepBound = 10 * time.Second
)

// MemberStore is what Members need of the store.
type MemberStore interface {
	Client() *clientv3.Client
	Status() *event.Value[store.Status]
	NodeID() string
	Peers() []store.Peer
	// Ask returns what the members say that answer.
	Ask(context.Context) map[uint64]peers.State
	Applied() uint64
	Removed(member uint64) bool
	AddLearner(ctx context.Context, id uint64, node, address string) error
	Promote(ctx context.Context, id uint64) error
	RemoveMember(ctx context.Context, id uint64) error
	MoveLeader(ctx context.Context, to uint64) error
}

// MembersConfig is what Members need.
type MembersConfig struct {
	Log         hclog.Logger
	Store       MemberStore
	ClusterUser string
	// StallBound is DefaultStallBound if it is zero.
	StallBound time.Duration
	// Before is called before each change of the store, with its name: where a test ends everything. Nil: nothing is.
	Before func(step string)
}

// Members has the store have the members that the cluster API wishes, one safe step at a time.
type Members struct {
	MembersConfig
	key, state string
	last       []string // of the last good document
	learner    learning
}

// learning is how far the learner has come.
type learning struct {
	id      uint64
	applied uint64
	since   time.Time // when it was last seen to make progress
	target  uint64    // what it must have applied to vote; 0: not known yet
}

// NewMembers returns Members.
func NewMembers(config MembersConfig) *Members {
	if config.StallBound == 0 {
		config.StallBound = DefaultStallBound
	}
	if config.Before == nil {
		config.Before = func(string) {}
	}
	return &Members{
		MembersConfig: config,
		key:           desired.Key(config.ClusterUser),
		state:         consensusv1.UserPrefix(config.ClusterUser) + consensusv1.StoreStateKey,
	}
}

// Run reconciles until ctx is done, and returns nil then.
func (m *Members) Run(ctx context.Context) error {
	status := m.Store.Status().Watch()
	timer := time.NewTimer(0)
	defer timer.Stop()
	watching, stop := context.WithCancel(store.Root(ctx))
	defer stop()
	documents := m.Store.Client().Watch(watching, m.key)
	shared := m.Store.Client().Watch(watching, peers.Prefix, clientv3.WithPrefix())
	said := ""
	for leading := false; ; {
		look := true
		select {
		case <-ctx.Done():
			return nil
		case <-status.Changed():
			current, err := status.Next(ctx)
			if err != nil {
				return nil
			}
			look = current.Leading() && !leading
			leading = current.Leading()
		case _, ok := <-documents:
			if !ok {
				documents = nil // the timer does it alone
			}
		case _, ok := <-shared:
			if !ok {
				shared = nil
			}
		case <-timer.C:
			timer.Reset(idleInterval)
		}
		if !look || !leading {
			m.learner = learning{}
			continue
		}
		busy, err := m.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if err.Error() != said {
				m.Log.Warn("the members of the store are not as desired yet; trying again", "error", err)
				said = err.Error()
			}
			timer.Reset(firstRetry)
		case busy:
			said = ""
			timer.Reset(busyInterval)
		default:
			said = ""
			timer.Reset(idleInterval)
		}
	}
}

// picture is what a round goes by.
type picture struct {
	desired   []string
	revision  int64 // of the document
	own       store.Peer
	peers     []store.Peer
	answers   map[uint64]peers.State
	announced map[string]peers.Announcement
	announcedAt,
	givenUpAt map[string]int64
	givenUp map[string]string
	removed map[uint64]string // by ID: the node
	absent  map[uint64][]uint64
	// steps and stuck are what is told of each node.
	steps map[string]string
	stuck map[string]bool
}

func (p *picture) tell(node, step string, stuck bool) {
	p.steps[node], p.stuck[node] = step, stuck
}

func (p *picture) wants(node string) bool { return slices.Contains(p.desired, node) }

// answers reports whether a member answers and follows the leader, who is the local one.
func (p *picture) follows(peer store.Peer) bool {
	state, ok := p.answers[peer.ID]
	return ok && state.Leader == peers.FormatMember(p.own.ID)
}

func (p *picture) of(node string) *store.Peer {
	for n, peer := range p.peers {
		if peer.Node == node {
			return &p.peers[n]
		}
	}
	return nil
}

// voters are the members that vote, without one; silent are the nodes of those among them that do not answer.
func (p *picture) voters(without uint64) (all []store.Peer, silent []string) {
	for _, peer := range p.peers {
		if peer.Learner || peer.ID == without {
			continue
		}
		all = append(all, peer)
		if !p.follows(peer) {
			silent = append(silent, peer.Node)
		}
	}
	return all, silent
}

// round looks, takes one step at most, and tells how it is. It reports whether something is under way.
func (m *Members) round(ctx context.Context) (busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepBound)
	defer cancel()
	p, err := m.look(ctx)
	if err != nil {
		return false, err
	}
	busy, err = m.step(ctx, p)
	if errors.Is(err, errStepped) {
		return true, nil // what is told comes with the next look
	}
	return busy, errors.Join(err, m.publish(ctx, p))
}

// errStepped says that the members have changed, so that what was seen of them is old.
var errStepped = errors.New("the members have changed")

// step takes the first step that there is to take. What must not happen at the same time waits for its turn.
func (m *Members) step(ctx context.Context, p *picture) (busy bool, err error) {
	done, err := m.finishRemovals(ctx, p)
	if err != nil || done {
		return true, err
	}
	if len(p.desired) == 0 {
		return false, nil // no document, or none that was ever good: nobody is removed on the word of nothing
	}
	for _, peer := range p.peers {
		if peer.Learner {
			return true, m.teach(ctx, p, peer)
		}
	}
	m.learner = learning{}
	waits := len(p.removed) > 0
	added, err := m.add(ctx, p)
	if err != nil || added {
		return true, err
	}
	removing, err := m.remove(ctx, p)
	return waits || removing, err
}

// teach sees to the learner: it votes as soon as it has caught up, and goes if it is not wanted or makes no progress.
func (m *Members) teach(ctx context.Context, p *picture, peer store.Peer) error {
	now := time.Now()
	state, answers := p.answers[peer.ID]
	if m.learner.id != peer.ID {
		m.learner = learning{id: peer.ID, since: now}
	}
	if !p.wants(peer.Node) {
		return m.drop(ctx, peer, "")
	}
	if answers && state.Applied > m.learner.applied {
		m.learner.applied, m.learner.since = state.Applied, now
	}
	if m.learner.target == 0 && answers {
		m.learner.target = m.Store.Applied()
	}
	voters, silent := p.voters(0)
	caughtUp := answers && p.follows(peer) && m.learner.applied >= m.learner.target
	switch {
	case caughtUp && len(voters)-len(silent)+1 > (len(voters)+1)/2:
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
	case caughtUp:
		p.tell(peer.Node, fmt.Sprintf("its member has taken over the data, but cannot vote before the members of %s answer: start these nodes, or take them out of the store",
			strings.Join(silent, ", ")), false)
		m.learner.since = now
		return nil
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
	return m.drop(ctx, peer, reason)
}

// drop removes a learner, which nobody misses.
func (m *Members) drop(ctx context.Context, peer store.Peer, reason string) error {
	if reason != "" {
		m.Before("give up")
		_, err := m.Store.Client().Txn(store.Root(ctx)).Then(clientv3.OpPut(peers.GivenUpKey(peer.Node), reason), clientv3.OpDelete(peers.AnnouncementKey(peer.Node))).Commit()
		if err != nil {
			return fmt.Errorf("note that the member of node %s is given up: %w", peer.Node, err)
		}
	}
	return m.expel(ctx, peer)
}

// add adds the first node that has prepared its member, as a learner.
func (m *Members) add(ctx context.Context, p *picture) (added bool, err error) {
	for _, node := range p.desired {
		announced, ok := p.announced[node]
		if p.of(node) != nil {
			continue
		}
		if ok && m.Store.Removed(announced.Member) {
			ok = false // it will ask for another one
		}
		switch {
		case p.givenUp[node] != "" && p.givenUpAt[node] > p.announcedAt[node]:
			p.tell(node, p.givenUp[node], true)
			continue
		case !ok:
			p.tell(node, "its role has not asked for a place in the store yet: wait until it runs there", false)
			continue
		}
		var deaf []string
		for _, peer := range p.peers {
			if !peer.Listens() {
				deaf = append(deaf, peer.Node)
			}
		}
		if len(deaf) > 0 {
			p.tell(node, fmt.Sprintf("its member is added as soon as that of %s listens for the others", strings.Join(deaf, ", ")), false)
			return true, nil
		}
		m.Before("add")
		if err := m.Store.AddLearner(ctx, announced.Member, node, announced.Address); err != nil {
			p.tell(node, fmt.Sprintf("its member cannot be added with the address %s: %v", announced.Address, err), true)
			return false, fmt.Errorf("add the member of node %s: %w", node, err)
		}
		m.Log.Info("added a member to the store, to vote when it has taken over the data", "node", node, "member", peers.FormatMember(announced.Member), "address", announced.Address)
		return true, errStepped
	}
	return false, nil
}

// remove removes the first voter that is not wanted, if a majority of those who stay answers.
func (m *Members) remove(ctx context.Context, p *picture) (busy bool, err error) {
	var first *store.Peer
	for n, peer := range p.peers {
		if p.wants(peer.Node) {
			continue
		}
		stay, silent := p.voters(peer.ID)
		all, allSilent := p.voters(0)
		switch {
		case len(stay) == 0:
			p.tell(peer.Node, "cannot be taken out: its member is the last one, which holds all of the cluster's data; have another node join the store first", true)
			continue
		case 2*len(silent) >= len(stay):
			p.tell(peer.Node, fmt.Sprintf("cannot be taken out: without its member the store would have no quorum, since of the %d left those of %s do not answer; "+
				"start these nodes, or take them out first", len(stay), strings.Join(silent, ", ")), true)
			continue
		case 2*len(allSilent) >= len(all):
			p.tell(peer.Node, fmt.Sprintf("cannot be taken out: the members of %s do not answer; start these nodes", strings.Join(allSilent, ", ")), true)
			continue
		}
		p.tell(peer.Node, "its member is being removed", false)
		if first == nil || first.ID == p.own.ID { // the leader goes last
			first = &p.peers[n]
		}
	}
	if first == nil {
		return false, nil
	}
	if first.ID != p.own.ID {
		return true, m.expel(ctx, *first)
	}
	return true, m.hand(ctx, p)
}

// hand moves the leadership to the voter that stays and has come furthest. It removes the former leader.
func (m *Members) hand(ctx context.Context, p *picture) error {
	var to *store.Peer
	stay, _ := p.voters(p.own.ID)
	for n, peer := range stay {
		if p.follows(peer) && (to == nil || p.wants(peer.Node) && !p.wants(to.Node) || p.wants(peer.Node) == p.wants(to.Node) && p.answers[peer.ID].Applied > p.answers[to.ID].Applied) {
			to = &stay[n]
		}
	}
	if to == nil {
		return fmt.Errorf("no other member answers that could lead the store in place of that of node %s", p.own.Node)
	}
	m.Before("hand over")
	if err := m.Store.MoveLeader(ctx, to.ID); err != nil {
		return fmt.Errorf("hand the leadership over to the member of node %s: %w", to.Node, err)
	}
	m.Log.Info("handed the leadership of the store over, since the local member is to be removed", "to", to.Node)
	return errStepped
}

// expel removes a member. Before, it is noted that this is not done until nobody has anything to do with it any more.
func (m *Members) expel(ctx context.Context, peer store.Peer) error {
	m.Before("note removal")
	if _, err := m.Store.Client().Put(store.Root(ctx), peers.RemovedKey(peer.ID), peer.Node); err != nil {
		return fmt.Errorf("note the removal of the member of node %s: %w", peer.Node, err)
	}
	m.Before("remove")
	if err := m.Store.RemoveMember(ctx, peer.ID); err != nil {
		return fmt.Errorf("remove the member of node %s: %w", peer.Node, err)
	}
	m.Log.Info("removed a member from the store", "node", peer.Node, "member", peers.FormatMember(peer.ID))
	return errStepped
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
		case there && !p.wants(node):
			continue // noted, and not removed yet
		case !there && len(missing) > 0:
			if p.of(node) == nil {
				p.tell(node, fmt.Sprintf("its member was removed; that the members of %s have closed their connections with it is waited for", strings.Join(missing, ", ")), false)
			}
			continue
		}
		m.Before("finish removal")
		_, err := m.Store.Client().Txn(store.Root(ctx)).Then(
			clientv3.OpDelete(peers.RemovedKey(id)),
			clientv3.OpDelete(peers.AbsentOf(id), clientv3.WithPrefix()),
		).Commit()
		if err != nil {
			return false, fmt.Errorf("note that the removal of the member of node %s is done: %w", node, err)
		}
		delete(p.removed, id)
		return true, errStepped
	}
	return false, nil
}
