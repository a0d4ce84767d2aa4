package reconcile

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// look reads what is wished, as a quorum has it, and how the members are.
func (m *Members) look(ctx context.Context) (*picture, error) {
	answer, err := m.Store.Client().Txn(store.Root(ctx)).Then(clientv3.OpGet(m.key), clientv3.OpGet(peers.Prefix, clientv3.WithPrefix())).Commit()
	if err != nil {
		return nil, fmt.Errorf("read which members the store is to have: %w", err)
	}
	p := &picture{
		announced: make(map[string]peers.Announcement), announcedAt: make(map[string]int64), givenUp: make(map[string]string), givenUpAt: make(map[string]int64),
		removed: make(map[uint64]string), absent: make(map[uint64][]uint64), steps: make(map[string]string), stuck: make(map[string]bool),
	}
	if found := answer.Responses[0].GetResponseRange().GetKvs(); len(found) > 0 {
		p.revision = found[0].ModRevision
		if parsed, err := desired.Parse(found[0].Value); err == nil { // the reconciler of the users says so if it cannot be read
			m.last = parsed.GetMembers()
		}
		p.desired = m.last
	}
	p.peers = m.Store.Peers()
	for _, peer := range p.peers {
		if peer.Node == m.Store.NodeID() {
			p.own = peer
		}
	}
	for _, found := range answer.Responses[1].GetResponseRange().GetKvs() {
		m.note(p, string(found.Key), found.Value, found.ModRevision)
	}
	p.answers = m.Store.Ask(ctx)
	return p, ctx.Err()
}

// note takes in one of the keys that the members share. What is not understood is nobody's wish.
func (m *Members) note(p *picture, key string, value []byte, revision int64) {
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
			p.removed[id] = string(value)
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

// publish tells the cluster API how far the store has come, if that has changed.
func (m *Members) publish(ctx context.Context, p *picture) error {
	if p.revision == 0 {
		return nil // nobody asks yet
	}
	state := &consensusv1.StoreState{DesiredRevision: p.revision}
	seen := make(map[string]bool)
	tell := func(member *consensusv1.StoreStateMember) {
		if seen[member.NodeId] {
			return
		}
		seen[member.NodeId] = true
		member.Step, member.Stuck = p.steps[member.NodeId], p.stuck[member.NodeId]
		state.Members = append(state.Members, member)
	}
	for _, peer := range p.peers {
		_, answers := p.answers[peer.ID]
		tell(&consensusv1.StoreStateMember{NodeId: peer.Node, MemberId: peers.FormatMember(peer.ID), Learner: peer.Learner, Healthy: answers})
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
	if len(told.Kvs) > 0 && bytes.Equal(told.Kvs[0].Value, content) {
		return nil
	}
	m.Before("tell")
	if _, err := m.Store.Client().Put(store.Root(ctx), m.state, string(content)); err != nil {
		return fmt.Errorf("tell how the members are: %w", err)
	}
	return nil
}
