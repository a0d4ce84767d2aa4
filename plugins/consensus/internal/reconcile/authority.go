package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// authorityPicture is what a round goes by for the CA by which the members know each other.
type authorityPicture struct {
	now *peers.Authority // nil: there is none, or it cannot be read
	at  int64            // when it was written
	// asked is how often the cluster API wants it replaced, answered how often it was.
	asked, answered uint64
	leftAt          int64             // when it was noted that a member has left that has its key; 0: none has
	followed        map[uint64]string // by member: the mark of what it follows
	step            string            // what is told
}

// note takes in one of the keys that the members share, if it is about the CA.
func (a *authorityPicture) note(log hclog.Logger, key string, value []byte, revision int64) bool {
	var err error
	switch member, followed := strings.CutPrefix(key, peers.FollowedPrefix); {
	case followed:
		if id, err := peers.ParseMember(member); err == nil {
			a.followed[id] = string(value)
		}
	case key == peers.AuthorityKey:
		a.now, err = peers.ParseAuthority(value)
		a.at = revision
	case key == peers.ReplaceKey:
		a.leftAt = revision
	case key == peers.AskedKey:
		a.answered, err = strconv.ParseUint(string(value), 10, 64)
	default:
		return false
	}
	if err != nil {
		log.Error("what is kept of the CA of the store's peers cannot be used", "key", key, "error", err)
	}
	return true
}

// due reports whether a replacement is to begin.
func (a *authorityPicture) due() bool { return a.leftAt != 0 || a.asked > a.answered }

// waits says what the next step waits for; empty: nothing. A member that has never said what it follows is missed only where there is something to follow.
func (a *authorityPicture) waits(members []store.Peer) string {
	var behind, mute []string
	for _, peer := range members {
		mark, told := a.followed[peer.ID]
		switch {
		case mark == a.now.Mark():
		case told || a.now.Phase() != peers.Steady:
			behind = append(behind, peer.Node)
		case a.due():
			mute = append(mute, peer.Node)
		}
	}
	switch {
	case len(behind) > 0:
		return fmt.Sprintf("the members of %s have yet to %s; start these nodes, or take the role from those that do not come back", strings.Join(behind, ", "),
			[]string{peers.Steady: "forget the old CA", peers.Prepared: "trust the new CA", peers.Active: "use a certificate of the new CA"}[a.now.Phase()])
	case len(mute) > 0:
		return fmt.Sprintf("it starts as soon as the members of %s can follow; start these nodes, and upgrade those whose version cannot replace the CA", strings.Join(mute, ", "))
	}
	return ""
}

// replaceAuthority takes the next step of a replacement of the CA. It starts one when a member has left that has its key, or when the cluster API asks for it. Each step waits until all
// members follow the one before.
func (m *Members) replaceAuthority(ctx context.Context, p *picture) error {
	a := &p.authority
	if a.now == nil {
		return nil
	}
	if waits := a.waits(p.peers); waits != "" {
		a.step = waits
		return nil
	}
	switch a.now.Phase() {
	case peers.Prepared:
		next, err := a.now.Activate()
		return m.setAuthority(ctx, p, steps.ActivateAuthority, next, err)
	case peers.Active:
		next, err := a.now.Retire()
		return m.setAuthority(ctx, p, steps.RetireAuthority, next, err)
	}
	var leaving []string
	for id, node := range p.removed {
		if !slices.ContainsFunc(p.peers, func(peer store.Peer) bool { return peer.ID == id }) {
			leaving = append(leaving, node)
		}
	}
	switch slices.Sort(leaving); {
	case len(leaving) > 0:
		a.step = fmt.Sprintf("it starts as soon as the removal of the member of %s is done", strings.Join(leaving, ", "))
		return nil
	case !a.due():
		a.step = ""
		return nil
	}
	next, err := a.now.Prepare(m.Store.ClusterID())
	return m.setAuthority(ctx, p, steps.PrepareAuthority, next, err)
}

// setAuthority takes a step, unless what it was decided by has changed meanwhile. The step that begins a replacement also deletes the reasons for it.
func (m *Members) setAuthority(ctx context.Context, p *picture, step checkpoint.Step, next *peers.Authority, err error) error {
	if err != nil {
		return err
	}
	content, err := next.Marshal()
	if err != nil {
		return err
	}
	a := &p.authority
	comparisons := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(peers.AuthorityKey), "=", a.at)}
	operations := []clientv3.Op{clientv3.OpPut(peers.AuthorityKey, string(content))}
	if step == steps.PrepareAuthority {
		comparisons = append(comparisons, clientv3.Compare(clientv3.ModRevision(peers.ReplaceKey), "=", a.leftAt))
		operations = append(operations, clientv3.OpDelete(peers.ReplaceKey), clientv3.OpPut(peers.AskedKey, strconv.FormatUint(max(a.asked, a.answered), 10)))
	}
	m.Before(string(step))
	err = checkpoint.Around(step, func() error {
		_, err := m.commit(ctx, p, comparisons, operations...)
		return err
	})
	if errors.Is(err, errStepped) {
		return err
	}
	if err != nil {
		return fmt.Errorf("replace the CA of the store's peers: %s: %w", step, err)
	}
	m.Log.Info("the CA by which the members of the store know each other is being replaced", "step", string(step))
	return errStepped
}
