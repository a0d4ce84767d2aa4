package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"regexp"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Records is where the pinned keys are: a *store.Store. All reads are linearizable.
type Records interface {
	// ReadNode reads the cluster's record, its CA and the record of the node, if there is one.
	ReadNode(ctx context.Context, id string) (*store.State, error)
	// ReadOperator reads the cluster's record, its CA and the record of the operator, if there is one.
	ReadOperator(ctx context.Context, name string) (*store.State, error)
	// ReadOperators reads the cluster's record, its CA and the records of all operators.
	ReadOperators(ctx context.Context) (*store.State, error)
	// ReadEpoch reads which change of the cluster was the last one. Those who ask at the same time are answered together.
	ReadEpoch(ctx context.Context) (uint64, error)
}

var _ Records = (*store.Store)(nil)

// Authenticator tells who calls.
type Authenticator struct {
	records   Records
	snapshots *event.Value[*cache.Snapshot]
	now       func() time.Time
	verified  verified
}

// NewAuthenticator returns an Authenticator that knows who is pinned from records. By snapshots it knows whom to look for there.
func NewAuthenticator(records Records, snapshots *event.Value[*cache.Snapshot], now func() time.Time) *Authenticator {
	return &Authenticator{records: records, snapshots: snapshots, now: now}
}

// unheardFor is how long is waited for the cache to hear of the last change, before somebody is told that it is not known whether they are known.
const unheardFor = 5 * time.Second

// plausible reports whether a caller may be known, by what this curator has heard of the cluster: only then is the store asked about the caller alone. Whoever is known to nobody costs it no
// more than the question what the last change was, which is asked once for all who come at the same time: the caller may have been made known in this very moment, by another curator.
func (a *Authenticator) plausible(ctx context.Context, is func(*store.State) bool) (bool, *store.State, error) {
	if snapshot, ok := a.snapshots.Get(); ok && snapshot.Cluster != nil && is(snapshot.State) {
		return true, snapshot.State, nil
	}
	epoch, err := a.records.ReadEpoch(ctx)
	if err != nil {
		return false, nil, answer.Error(err)
	}
	bounded, cancel := context.WithTimeout(ctx, unheardFor)
	defer cancel()
	snapshot, err := a.snapshots.Wait(bounded, func(snapshot *cache.Snapshot) bool { return snapshot.Cluster != nil && snapshot.Epoch >= epoch })
	if err != nil {
		if ctx.Err() != nil {
			return false, nil, context.Cause(ctx)
		}
		return false, nil, answer.Errorf(codes.Unavailable, "this curator has not heard of the last change of the cluster yet: try again, or another curator")
	}
	// Of a cluster of another version nothing is known here: the store is asked, and what is wrong is told.
	return is(snapshot.State) || snapshot.CheckCluster() != nil, snapshot.State, nil
}

// Authenticate returns who made the call of ctx. Its errors are gRPC statuses: Unauthenticated with the reason, or what kept it from finding
// out.
func (a *Authenticator) Authenticate(ctx context.Context) (Caller, error) {
	chain, err := shown(ctx)
	if err != nil {
		return Caller{}, err
	}
	if key, err := identity.PinnedKey(chain[0]); err == nil {
		return a.pinned(ctx, key)
	}
	if named, err := identity.SessionOf(chain[0]); err == nil {
		return a.session(ctx, chain, named)
	}
	return a.svid(ctx, chain)
}

// shown returns the client's certificates, the leaf first. The handshake has proved that the client holds the leaf's key.
func shown(ctx context.Context) ([]*x509.Certificate, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil, unauthenticated("the call has no peer")
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil, unauthenticated("the connection shows no client certificate")
	}
	return info.State.PeerCertificates, nil
}

// pinned finds whose key a self-signed certificate has proved.
func (a *Authenticator) pinned(ctx context.Context, key ed25519.PublicKey) (Caller, error) {
	id := identity.NodeID(key)
	known, state, err := a.plausible(ctx, func(state *store.State) bool { return pins(state, key) })
	if err != nil {
		return Caller{}, err
	}
	if !known {
		return Caller{}, unpinned(state)
	}
	if state, err = a.records.ReadNode(ctx, id); err != nil {
		return Caller{}, answer.Error(err)
	}
	if key.Equal(ed25519.PublicKey(state.Cluster.GetOwnerPublicKey())) {
		return owner(state).as(), nil
	}
	if pinsNode(state, key) {
		return proving(state, id, func(state *store.State) error {
			if !pinsNode(state, key) {
				return unpinned(state)
			}
			return nil
		})
	}
	// Operators show their key only to log in, so that this is rare, and there is no list of them by key to keep right.
	if state, err = a.records.ReadOperators(ctx); err != nil {
		return Caller{}, answer.Error(err)
	}
	if record := holder(state, key); record != nil {
		return operator(state, record).as(), nil
	}
	return Caller{}, unpinned(state)
}

// pins reports whether a key is that of somebody in a state of the cluster.
func pins(state *store.State, key ed25519.PublicKey) bool {
	return key.Equal(ed25519.PublicKey(state.Cluster.GetOwnerPublicKey())) || pinsNode(state, key) || holder(state, key) != nil
}

// pinsNode reports whether a key is that of a node in a state of the cluster.
func pinsNode(state *store.State, key ed25519.PublicKey) bool {
	return key.Equal(ed25519.PublicKey(state.Nodes[identity.NodeID(key)].GetPublicKey()))
}

func unpinned(state *store.State) error {
	return unauthenticated("the key of the self-signed client certificate is neither that of a node of cluster %s nor that of its owner or of an operator: "+
		"check that the credentials are for this cluster, and that they were not revoked or replaced", state.Cluster.GetClusterId())
}

// session finds whose session a certificate is of. named is what the certificate says, which proves nothing yet.
func (a *Authenticator) session(ctx context.Context, chain []*x509.Certificate, named identity.Session) (Caller, error) {
	known, state, err := a.plausible(ctx, func(state *store.State) bool {
		roots, err := authorities(state)
		if err == nil {
			_, err = identity.VerifySession(chain, roots, identity.TrustDomain(state.Cluster.GetClusterId()), a.now())
		}
		return err == nil
	})
	if err != nil {
		return Caller{}, err
	}
	if known {
		if state, err = a.records.ReadOperator(ctx, named.Operator); err != nil {
			return Caller{}, answer.Error(err)
		}
	}
	roots, err := authorities(state)
	if err != nil {
		return Caller{}, err
	}
	session, err := identity.VerifySession(chain, roots, identity.TrustDomain(state.Cluster.GetClusterId()), a.now())
	if err != nil {
		return Caller{}, veiled("the client certificate of a session was not issued by this cluster, or is not valid any more",
			"the client certificate of the session was not issued by cluster %s, or is not valid any more: %v; log in again (`reeve login`)", state.Cluster.GetClusterId(), err)
	}
	var person *Person
	if session.Operator == "" {
		if person = owner(state); person.ID != session.ID {
			return Caller{}, unauthenticated("the session is of an owner key that was replaced: log in with the present one (`reeve login`)")
		}
	} else {
		record := state.Operators[session.Operator]
		if record == nil || record.GetId() != session.ID {
			return Caller{}, unauthenticated("the operator %q, of whom the session is, was revoked", session.Operator)
		}
		person = operator(state, record)
	}
	person.Session, person.Until = &session, chain[0].NotAfter
	return person.as(), nil
}

// nodePath is the path of a node's SPIFFE ID.
var nodePath = regexp.MustCompile(`^/node/(reeve-[0-9a-f]{32})$`)

// svid finds which node an SVID was issued to.
func (a *Authenticator) svid(ctx context.Context, chain []*x509.Certificate) (Caller, error) {
	id, err := x509svid.IDFromCert(chain[0])
	if err != nil {
		return Caller{}, veiled("the client certificate is neither self-signed by a pinned key nor an SVID",
			"the client certificate is neither self-signed by a pinned key nor an SVID: %v", err)
	}
	match := nodePath.FindStringSubmatch(id.Path())
	if match == nil {
		return Caller{}, veiled("the client certificate is neither a node's nor that of a session",
			"%s is neither a node nor a session: only nodes, operators and the owner call the cluster API", id)
	}
	nodeID := match[1]
	known, state, err := a.plausible(ctx, func(state *store.State) bool { return a.verify(chain, state, a.now()) == nil })
	if err != nil {
		return Caller{}, err
	}
	if known {
		if state, err = a.records.ReadNode(ctx, nodeID); err != nil {
			return Caller{}, answer.Error(err)
		}
	}
	return proving(state, nodeID, func(state *store.State) error {
		leaf, now := chain[0], a.now()
		if err := a.verify(chain, state, now); err != nil {
			if now.After(leaf.NotAfter) {
				return unauthenticated("the SVID of node %s ended at %s: connect with a self-signed certificate of the node key and ask for a new one",
					nodeID, leaf.NotAfter.UTC().Format(time.RFC3339))
			}
			return veiled("the client certificate for node "+nodeID+" was not issued by this cluster",
				"the client certificate for %s was not issued by cluster %s: %v", id, state.Cluster.GetClusterId(), err)
		}
		node := state.Nodes[nodeID]
		if node == nil {
			return unauthenticated("the cluster has no record of node %s", nodeID)
		}
		if key, ok := leaf.PublicKey.(ed25519.PublicKey); !ok || !key.Equal(ed25519.PublicKey(node.GetPublicKey())) {
			return unauthenticated("the SVID's key is not the one that the record of node %s pins", nodeID)
		}
		return nil
	})
}

// proving admits a node that is a member in a state of the cluster, and that has proved there to be that node.
func proving(state *store.State, id string, proved func(*store.State) error) (Caller, error) {
	stands := func(state *store.State) error {
		if err := proved(state); err != nil {
			return err
		}
		return member(state, id)
	}
	if err := stands(state); err != nil {
		return Caller{}, err
	}
	return Caller{Kind: clusterv1.Caller_CALLER_NODE, NodeID: id, state: state, stands: stands, read: state.Revision}, nil
}

// verify verifies that a chain is of an SVID of the cluster. One that was verified is not verified again as long as it is valid and the cluster has the same CA: a node
// shows the same one with every call.
func (a *Authenticator) verify(chain []*x509.Certificate, state *store.State, now time.Time) error {
	shown := digest(chain, state)
	if a.verified.at(shown, now) {
		return nil
	}
	trustDomain, err := spiffeid.TrustDomainFromString(identity.TrustDomain(state.Cluster.GetClusterId()))
	if err != nil {
		return err
	}
	roots, err := authorities(state)
	if err != nil {
		return err
	}
	_, chains, err := x509svid.Verify(chain, x509bundle.FromX509Authorities(trustDomain, roots), x509svid.WithTime(now))
	if err != nil {
		return err
	}
	a.verified.keep(shown, chains)
	return nil
}

func authorities(state *store.State) ([]*x509.Certificate, error) {
	var roots []*x509.Certificate
	for _, der := range state.CA {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("stored CA certificate: %w", err)
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// Newcomer returns who made the call of ctx for an RPC that is for newcomers: whoever holds the key of a self-signed certificate. No record is looked at, so
// nothing is asked of the store. What the key may do is the call's to find out.
func Newcomer(ctx context.Context) (Caller, error) {
	chain, err := shown(ctx)
	if err != nil {
		return Caller{}, err
	}
	key, err := identity.PinnedKey(chain[0])
	if err != nil {
		return Caller{}, veiled("the client certificate is not self-signed by an Ed25519 key",
			"this call is made with a self-signed certificate of the node key, or to get the key of a volume of the join key: %v", err)
	}
	return Caller{Kind: clusterv1.Caller_CALLER_NEWCOMER, Key: key}, nil
}

// member returns why a node is not one of those that have come in and that have not left.
func member(state *store.State, id string) error {
	node := state.Nodes[id]
	switch node.GetState() {
	case clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
		return nil
	case clusterv1.NodeState_NODE_STATE_DECOMMISSIONED:
		return answer.Removed(node, state.Generation)
	}
	return unauthenticated("node %s is no member of the cluster: its state is %s", node.GetId(), node.GetState())
}

func unauthenticated(format string, args ...any) error {
	return answer.Errorf(codes.Unauthenticated, format, args...)
}

// veiled is for what would quote a certificate that proves nothing.
func veiled(reason, format string, args ...any) error {
	return answer.Veiled(codes.Unauthenticated, reason, format, args...)
}
