package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// picture is what a round goes by.
type picture struct {
	desired  []string
	replaced []string // IDs of members
	revision int64    // of the document
	own      store.Peer
	peers    []store.Peer
	answers  map[uint64]peers.State
	// target is what a member that keeps up has applied, as far as that is known yet.
	target    uint64
	measured  bool
	announced map[string]peers.Announcement
	announcedAt,
	givenUpAt map[string]int64
	givenUp    map[string]string
	removed    map[uint64]string // by ID: the node
	removedAt  map[uint64]int64
	absent     map[uint64][]uint64
	damaged    map[uint64]string // by ID: why
	distrusted map[uint64]bool   // those of them that a majority is a witness of
	authority  authorityPicture
	// steps and stuck are what is told of each node.
	steps map[string]string
	stuck map[string]bool
}

func (p *picture) tell(node, step string, stuck bool) {
	p.steps[node], p.stuck[node] = step, stuck
}

func (p *picture) wants(node string) bool { return slices.Contains(p.desired, node) }

// keeps reports whether a member is to stay: its node is to have one, and not a new one in its place.
func (p *picture) keeps(id uint64, node string) bool {
	return p.wants(node) && !slices.Contains(p.replaced, peers.FormatMember(id))
}

// follows reports whether a member answers and follows the leader, who is the local one.
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

// good reports whether a member follows the leader, keeps up with it and has the right data. One that is far behind is of no use to a quorum until it has caught up.
func (p *picture) good(peer store.Peer) bool {
	return p.follows(peer) && p.answers[peer.ID].Applied >= p.target && !p.distrusted[peer.ID]
}

// voters are the members that vote, without one; silent are the nodes of those among them that are not good.
func (p *picture) voters(without uint64) (all []store.Peer, silent []string) {
	for _, peer := range p.peers {
		if peer.Learner || peer.ID == without {
			continue
		}
		all = append(all, peer)
		if !p.good(peer) {
			silent = append(silent, peer.Node)
		}
	}
	return all, silent
}

// deaf are the nodes of the voters that have not heard a member, of those that say whom they hear.
func (p *picture) deaf(member store.Peer) (nodes []string) {
	for _, peer := range p.peers {
		state := p.answers[peer.ID]
		if !peer.Learner && peer.ID != p.own.ID && state.Asked && !slices.Contains(state.Reached, peers.FormatMember(member.ID)) {
			nodes = append(nodes, peer.Node)
		}
	}
	return nodes
}

// linked reports whether neither of two members says that it does not reach the other.
func (p *picture) linked(a, b store.Peer) bool {
	return !slices.Contains(p.answers[a.ID].Unreached, peers.FormatMember(b.ID)) && !slices.Contains(p.answers[b.ID].Unreached, peers.FormatMember(a.ID))
}

// heirs are those of some voters that could lead the store without the local member: each is good, and linked with so many good ones that they are a majority.
func (p *picture) heirs(stay []store.Peer) (heirs []store.Peer) {
	for _, heir := range stay {
		followers := 0
		for _, peer := range stay {
			if p.good(peer) && p.linked(heir, peer) {
				followers++
			}
		}
		if p.good(heir) && 2*followers > len(stay) {
			heirs = append(heirs, heir)
		}
	}
	return heirs
}

// trusted are the other voters that are good.
func (p *picture) trusted() []store.Peer {
	all, _ := p.voters(p.own.ID)
	return slices.DeleteFunc(all, func(peer store.Peer) bool { return !p.good(peer) })
}

// apart names the pairs of some voters that do not reach each other.
func (p *picture) apart(among []store.Peer) string {
	var pairs []string
	for n, a := range among {
		for _, b := range among[n+1:] {
			if !p.linked(a, b) {
				pairs = append(pairs, a.Node+" and "+b.Node)
			}
		}
	}
	return strings.Join(pairs, ", ")
}

// markInterval is how far apart it is noted what the leader has applied. Between one and a few of them a member has to have applied the same.
const markInterval = time.Second

// marks are what the leader had applied at former looks.
type marks struct{ older, newer mark }

type mark struct {
	applied uint64
	at      time.Time
}

// take notes what the leader has applied now, if it is time.
func (m *marks) take(applied uint64) {
	if now := time.Now(); now.Sub(m.newer.at) >= markInterval {
		m.older, m.newer = m.newer, mark{applied: applied, at: now}
	}
}

// look reads what is wished, as a quorum has it, and how the members are.
func (m *Members) look(ctx context.Context) (*picture, error) {
	answer, err := m.Store.Client().Txn(store.Root(ctx)).Then(clientv3.OpGet(m.key), clientv3.OpGet(peers.Prefix, clientv3.WithPrefix())).Commit()
	if err != nil {
		return nil, fmt.Errorf("read which members the store is to have: %w", err)
	}
	p := &picture{
		announced: make(map[string]peers.Announcement), announcedAt: make(map[string]int64), givenUp: make(map[string]string), givenUpAt: make(map[string]int64),
		authority: authorityPicture{followed: make(map[uint64]string)}, removed: make(map[uint64]string), removedAt: make(map[uint64]int64), absent: make(map[uint64][]uint64),
		damaged: make(map[uint64]string), distrusted: make(map[uint64]bool), steps: make(map[string]string), stuck: make(map[string]bool),
	}
	if found := answer.Responses[0].GetResponseRange().GetKvs(); len(found) > 0 {
		p.revision = found[0].ModRevision
		if parsed, err := desired.Parse(found[0].Value); err == nil { // the reconciler of the users says so if it cannot be read
			m.last, m.replaced, m.asked = parsed.GetMembers(), parsed.GetReplacedMembers(), parsed.GetPeerAuthorities()
		}
		p.desired, p.replaced, p.authority.asked = m.last, m.replaced, m.asked
	}
	p.peers = m.Store.Peers()
	for _, peer := range p.peers {
		if peer.Node == m.Store.NodeID() {
			p.own = peer
		}
	}
	for _, found := range answer.Responses[1].GetResponseRange().GetKvs() {
		p.noteDamage(string(found.Key), string(found.Value))
		m.note(p, string(found.Key), found.Value, found.ModRevision)
	}
	if a := &p.authority; a.now != nil && (a.due() || len(p.removed) > 0 || a.now.Phase() != peers.Steady) {
		a.step = "it goes on when no member is joining or leaving"
	}
	m.see(p)
	p.answers = m.Store.Ask(ctx)
	return p, ctx.Err()
}

// see goes by what former looks have seen.
func (m *Members) see(p *picture) {
	m.marks.take(m.Store.Applied())
	p.target, p.measured = m.marks.older.applied, !m.marks.older.at.IsZero()
	before := m.noted
	m.noted = make(map[uint64]time.Time, len(p.removed))
	for id := range p.removed {
		m.noted[id] = time.Now()
		if since, ok := before[id]; ok {
			m.noted[id] = since
		}
	}
	expected := m.awaited
	m.awaited = make(map[string]time.Time)
	for _, node := range p.desired {
		if p.of(node) == nil && (p.givenUp[node] == "" || p.givenUpAt[node] <= p.announcedAt[node]) {
			m.awaited[node] = time.Now()
			if since, ok := expected[node]; ok {
				m.awaited[node] = since
			}
		}
	}
}

// coming are the nodes whose members are still to come, which nothing keeps from that, and which have not been waited for in vain for so long that they are no more.
func (m *Members) coming(p *picture) (nodes []string) {
	for _, node := range p.desired {
		if since, ok := m.awaited[node]; ok && !p.stuck[node] && time.Since(since) < m.StallBound {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// note takes in one of the keys that the members share. What is not understood is nobody's wish.
func (m *Members) note(p *picture, key string, value []byte, revision int64) {
	if p.authority.note(m.Log, key, value, revision) {
		return
	}
	kind, rest, _ := strings.Cut(strings.TrimPrefix(key, peers.Prefix), "/")
	switch kind + "/" {
	case strings.TrimPrefix(peers.AnnouncementKey(""), peers.Prefix):
		announced, err := peers.ParseAnnouncement(value)
		if err != nil {
			m.Log.Error("the announcement of a member cannot be used", "node", rest, "error", err)
			return
		}
		p.announced[rest], p.announcedAt[rest] = announced, revision
	case strings.TrimPrefix(peers.GivenUpKey(""), peers.Prefix):
		p.givenUp[rest], p.givenUpAt[rest] = string(value), revision
	case strings.TrimPrefix(peers.RemovedPrefix, peers.Prefix):
		if id, err := peers.ParseMember(rest); err == nil {
			p.removed[id], p.removedAt[id] = string(value), revision
		}
	case strings.TrimPrefix(peers.AbsentPrefix, peers.Prefix):
		removed, member, _ := strings.Cut(rest, "/")
		id, err := peers.ParseMember(removed)
		by, errBy := peers.ParseMember(member)
		if err == nil && errBy == nil {
			p.absent[id] = append(p.absent[id], by)
		}
	}
}

// noteDamage takes in what was found about one of the members.
func (p *picture) noteDamage(key, reason string) {
	for _, peer := range p.peers {
		if certain, of := peers.DamageOf(key, peer.ID); of {
			p.damaged[peer.ID], p.distrusted[peer.ID] = reason, certain
		}
	}
}

// publish tells the cluster API how far the store has come, if that has changed.
func (m *Members) publish(ctx context.Context, p *picture) error {
	if p.revision == 0 {
		return nil // nobody asks yet
	}
	state := &consensusv1.StoreState{DesiredRevision: p.revision, PeerAuthorityStep: p.authority.step, LeaderNodeId: p.own.Node}
	seen := make(map[string]bool)
	tell := func(member *consensusv1.StoreStateMember) {
		if seen[member.NodeId] {
			return
		}
		seen[member.NodeId] = true
		member.Step, member.Stuck = p.steps[member.NodeId], p.stuck[member.NodeId]
		state.Members = append(state.Members, member)
	}
	_, cuts := store.Links(p.peers, p.answers)
	for _, peer := range p.peers {
		_, answers := p.answers[peer.ID]
		told := &consensusv1.StoreStateMember{NodeId: peer.Node, MemberId: peers.FormatMember(peer.ID), Learner: peer.Learner, Healthy: answers, Damage: p.damaged[peer.ID], DamageCertain: p.distrusted[peer.ID]}
		for _, cut := range cuts {
			if cut.From == peer.Node {
				told.Unreached = append(told.Unreached, cut.To)
			}
		}
		tell(told)
	}
	for id, node := range p.removed { // it counts as a member until it is done
		tell(&consensusv1.StoreStateMember{NodeId: node, MemberId: peers.FormatMember(id)})
	}
	for _, node := range p.desired {
		tell(&consensusv1.StoreStateMember{NodeId: node})
	}
	slices.SortFunc(state.Members, func(a, b *consensusv1.StoreStateMember) int { return strings.Compare(a.NodeId, b.NodeId) })
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(state)
	if err != nil {
		return err
	}
	told, err := m.Store.Client().Get(store.Root(ctx), m.state, clientv3.WithSerializable())
	if err != nil {
		return fmt.Errorf("read what was told of the members: %w", err)
	}
	before := int64(0)
	if len(told.Kvs) > 0 {
		if before = told.Kvs[0].ModRevision; bytes.Equal(told.Kvs[0].Value, content) {
			return nil
		}
	}
	m.Before("tell")
	err = checkpoint.Around(steps.Tell, func() error {
		_, err := m.commit(ctx, p, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(m.state), "=", before)}, clientv3.OpPut(m.state, string(content)))
		return err
	})
	if err != nil && !errors.Is(err, errStepped) { // there is a newer document, which the watch tells of, or somebody else has told; the next look sees it
		return fmt.Errorf("tell how the members are: %w", err)
	}
	return nil
}
