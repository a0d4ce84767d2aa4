package auth

import (
	"crypto/ed25519"
	"crypto/x509"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
)

// Expected reports whether the certificates of a handshake are those of somebody in a state of the cluster, which may be an old one: the owner, an operator, a node that is a member, also by its join
// key, or a session that the cluster issued. It decides nothing but how much somebody may ask before Authenticate has decided.
func Expected(chain []*x509.Certificate, state *store.State, now time.Time) bool {
	if key, is := chain[0].PublicKey.(ed25519.PublicKey); is {
		if node := state.Nodes[identity.NodeID(key)]; node != nil && key.Equal(ed25519.PublicKey(node.GetPublicKey())) {
			return cache.IsMember(node)
		}
		if key.Equal(ed25519.PublicKey(state.Cluster.GetOwnerPublicKey())) || holder(state, key) != nil || cache.IsMember(rules.JoinKeyHolder(state, key)) {
			return true
		}
	}
	roots, err := authorities(state)
	if err != nil {
		return false
	}
	session, err := identity.VerifySession(chain, roots, identity.TrustDomain(state.Cluster.GetClusterId()), now)
	if err != nil {
		return false
	}
	if session.Operator == "" {
		return session.ID == owner(state).ID
	}
	return session.ID == state.Operators[session.Operator].GetId()
}
