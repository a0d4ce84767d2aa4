package nodeapi

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/core/identity"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/peercred"
)

// checkLocal admits the core's own user and root to the local socket. The file's mode keeps the others away already; this holds if
// somebody changed it.
func checkLocal(caller peercred.Peer) error {
	if caller.UID != 0 && caller.UID != uint32(os.Geteuid()) {
		return fmt.Errorf("nodeapi: user %d may not use the node's socket", caller.UID)
	}
	return nil
}

// caller is who makes a call, and how that was proved.
type caller struct {
	// kind is as what the caller is let in.
	kind clusterv1.Caller
	// name is who it is: "owner", "operator alice", "user 0", or "unknown".
	name string
	// address is from where: host:port, or "local".
	address string
	// One of these is what was proved over TCP.
	session *names.Session
	key     ed25519.PublicKey
}

// local reports whether the caller is on the local socket.
func (c caller) local() bool { return c.kind == clusterv1.Caller_CALLER_LOCAL }

// callers tells who calls: by what the caller proves, and by who the owner and the operators are at that moment.
type callers struct {
	identity  *event.Value[*identity.Identity]
	operators *event.Value[[]*clusterv1.Operator]
	directory *event.Value[*hostv1.Directory]
	now       func() time.Time
}

// of returns who makes a call. With an error the caller is not let in; what is known of it is returned all the same.
func (c *callers) of(ctx context.Context) (caller, error) {
	who := caller{name: "unknown"}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return who, errors.New("nodeapi: the caller is not known")
	}
	switch proof := from.AuthInfo.(type) {
	case peercred.Info:
		who = caller{kind: clusterv1.Caller_CALLER_LOCAL, name: fmt.Sprintf("user %d", proof.Peer.UID), address: "local"}
		return who, checkLocal(proof.Peer)
	case credentials.TLSInfo:
		who, err := c.proved(proof.State, c.now())
		who.address = address(from.Addr)
		if err != nil {
			return who, err
		}
		return c.present(who)
	default:
		return who, errors.New("nodeapi: the caller proved nothing")
	}
}

func address(from net.Addr) string {
	if from == nil {
		return ""
	}
	return from.String()
}

// proved returns what a client has proved at a time, with nothing looked up: a session, or that it holds a key.
func (c *callers) proved(state tls.ConnectionState, now time.Time) (caller, error) {
	who := caller{name: "unknown"}
	if len(state.PeerCertificates) == 0 {
		return who, errors.New("nodeapi: the client shows no certificate: `reeve login` gets one")
	}
	node, _ := c.identity.Get()
	if node == nil {
		return who, errors.New("nodeapi: the node is not a member of a cluster yet")
	}
	session, err := names.VerifySession(state.PeerCertificates, node.CA, node.TrustDomain, now)
	switch {
	case err == nil:
		return caller{name: sessionName(session), session: &session}, nil
	case !errors.Is(err, names.ErrNoSession):
		return who, fmt.Errorf("nodeapi: the certificate does not prove a session (%w): `reeve login` gets a new one", err)
	}
	key, err := names.PinnedKey(state.PeerCertificates[0])
	if err != nil {
		return who, fmt.Errorf("nodeapi: the certificate is neither that of a session nor self-signed (%w): `reeve login` gets one", err)
	}
	who.key = key
	return who, nil
}

func sessionName(session names.Session) string {
	if session.Operator == "" {
		return "owner"
	}
	return "operator " + session.Operator
}

// present returns as what a caller is let in now, by who the owner and the operators are. What was proved is not looked at again, but that the
// session has not ended.
func (c *callers) present(who caller) (caller, error) {
	if who.local() {
		return who, nil
	}
	who.kind = clusterv1.Caller_CALLER_UNSPECIFIED
	var owner ed25519.PublicKey
	if node, _ := c.identity.Get(); node != nil {
		owner = node.Owner
	}
	if who.session != nil {
		return c.holder(who, owner)
	}
	switch {
	case len(owner) == 0:
		return who, errors.New("nodeapi: the node does not know the owner of its cluster yet: try again, or use its local socket")
	case who.key.Equal(owner):
		who.kind, who.name = clusterv1.Caller_CALLER_OWNER, "owner"
		return who, nil
	}
	if record := c.find(func(o *clusterv1.Operator) bool { return slices.Equal(o.GetPublicKey(), who.key) }); record != nil {
		who.name = "operator " + record.GetName()
		return who, fmt.Errorf("nodeapi: a node does not let operators in by their key, and so not %s: `reeve login` gets a certificate", who.name)
	}
	if id := names.NodeID(who.key); c.isNode(id) {
		who.kind, who.name = clusterv1.Caller_CALLER_NODE, "node "+id
		return who, nil
	}
	return who, errors.New("nodeapi: the client's key is neither that of the cluster's owner nor that of a node of the cluster")
}

// holder is present for who holds a session.
func (c *callers) holder(who caller, owner ed25519.PublicKey) (caller, error) {
	session := who.session
	if !c.now().Before(session.Ends) {
		return who, fmt.Errorf("nodeapi: the session of %s ended at %s: `reeve login` begins a new one", who.name, session.Ends.UTC().Format(time.RFC3339))
	}
	if session.Operator == "" {
		if len(owner) == 0 || session.ID != names.OwnerKeyID(owner) {
			return who, errors.New("nodeapi: the session is that of a key that is not the cluster's owner key any more: `reeve login` with the present one begins a new session")
		}
		who.kind = clusterv1.Caller_CALLER_OWNER
		return who, nil
	}
	if _, known := c.operators.Get(); !known {
		return who, errors.New("nodeapi: the node does not know the operators of its cluster yet: try again, or use its local socket")
	}
	record := c.find(func(o *clusterv1.Operator) bool { return o.GetName() == session.Operator })
	if record == nil {
		return who, fmt.Errorf("nodeapi: %s is none of this cluster's operators any more: an owner can add it again, then `reeve login`", who.name)
	}
	if record.GetId() == "" || record.GetId() != session.ID {
		return who, fmt.Errorf("nodeapi: %s was added anew after this session began, and may be somebody else: `reeve login` begins a new session", who.name)
	}
	switch record.GetRole() {
	case clusterv1.OperatorRole_OPERATOR_ROLE_OWNER:
		who.kind = clusterv1.Caller_CALLER_OWNER
	case clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR:
		who.kind = clusterv1.Caller_CALLER_OPERATOR
	case clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER:
		who.kind = clusterv1.Caller_CALLER_VIEWER
	default:
		return who, fmt.Errorf("nodeapi: %s has a role (%d) that this version of the node does not know: upgrade the node", who.name, record.GetRole())
	}
	return who, nil
}

// isNode says whether the directory has a node with that ID.
func (c *callers) isNode(id string) bool {
	directory, _ := c.directory.Get()
	return slices.ContainsFunc(directory.GetNodes(), func(node *hostv1.DirectoryNode) bool { return node.GetNodeId() == id })
}

func (c *callers) find(accept func(*clusterv1.Operator) bool) *clusterv1.Operator {
	operators, _ := c.operators.Get()
	if at := slices.IndexFunc(operators, accept); at >= 0 {
		return operators[at]
	}
	return nil
}

// mayConnect refuses those who cannot be anybody to whom the API has something to say. Whose session has ended or was ended gets through, and hears
// from the gate what to do: a handshake cannot tell it. So does an operator who has not logged in.
func (c *callers) mayConnect(state tls.ConnectionState) error {
	now := c.now()
	if len(state.PeerCertificates) > 0 {
		if _, err := names.SessionOf(state.PeerCertificates[0]); err == nil {
			// While it was valid, that is.
			now = state.PeerCertificates[0].NotAfter.Add(-time.Second)
		}
	}
	who, err := c.proved(state, now)
	if err != nil || who.session != nil {
		return err
	}
	if who, err = c.present(who); err != nil && who.name == "unknown" {
		return err
	}
	return nil
}

// tlsConfig looks up at each handshake who the node and its callers are.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			node, _ := s.config.Identity.Get()
			if node == nil || node.SVID == nil {
				return nil, errors.New("nodeapi: the node is not a member of a cluster yet")
			}
			return node.SVID, nil
		},
		// Chains are verified by VerifyConnection: the CA need not be known when the server starts, and a pinned key has none.
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := s.callers.mayConnect(state); err != nil {
				s.config.Log.Debug("a connection to the node's API was refused", "error", err)
				return err
			}
			return nil
		},
		// A resumed session would carry a caller of the past.
		SessionTicketsDisabled: true,
	}
}
