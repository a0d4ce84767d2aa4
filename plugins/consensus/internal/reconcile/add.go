package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// add adds the first node that has prepared its member and can be added, as a learner.
func (m *Members) add(ctx context.Context, p *picture) (added bool, err error) {
	var failed []error
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
			failed = append(failed, fmt.Errorf("add the member of node %s: %w", node, err))
			if ctx.Err() != nil {
				break
			}
			continue // its address, say, is that of another member, which must not keep the others waiting
		}
		m.Log.Info("added a member to the store, to vote when it has taken over the data", "node", node, "member", peers.FormatMember(announced.Member), "address", announced.Address)
		return true, errStepped
	}
	return false, errors.Join(failed...)
}
