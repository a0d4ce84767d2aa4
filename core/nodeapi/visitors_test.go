package nodeapi_test

import (
	"crypto/ed25519"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// The identifiers of operators' records.
const (
	aliceID = "a11cea11cea11cea"
	bobID   = "b0bb0bb0bb0bb0b0"
	caroID  = "ca20ca20ca20ca20"
	daveID  = "dade0dade0dade00"
	oldID   = "0123456789abcdef"
)

// everybody sets the operators of the cluster: one of each role, and one who was added again under another ID.
func (a *api) everybody() []*clusterv1.Operator {
	operators := []*clusterv1.Operator{
		record("alice", aliceID, clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR),
		record("bob", bobID, clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER),
		record("caro", caroID, clusterv1.OperatorRole_OPERATOR_ROLE_OWNER),
		record("dave", daveID, clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR),
		record("erin", oldID, 99),
	}
	a.operators.Set(operators)
	return operators
}

// visitorOf is a kind of caller, and how the API answers it.
type visitorOf struct {
	name string
	conn *grpc.ClientConn
	// is as what it is let in. If it is not, refused says by which code: Unavailable is the end of the handshake, of which the client hears
	// nothing else, and Unauthenticated comes from the gate, with a message that says.
	is      clusterv1.Caller
	refused codes.Code
	says    string
}

func (a *api) visitors() []visitorOf {
	a.t.Helper()
	node, _ := a.identity.Get()
	operators := a.everybody()
	foreign, daves, member := newKey(a.t), newKey(a.t), newKey(a.t)
	a.directory.Set(&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: names.NodeID(member.Public().(ed25519.PublicKey))}}})
	operators[3].PublicKey = daves.Public().(ed25519.PublicKey) // nobody has called yet
	other := serve(a.t)                                         // of a foreign CA
	ownerID := names.OwnerKeyID(a.owner.Public().(ed25519.PublicKey))
	soon, past := time.Now().Add(5*time.Minute), time.Now().Add(-time.Minute)
	session := func(operator, id string, ends, until time.Time) *grpc.ClientConn {
		return a.remote(a.holder(names.Session{Operator: operator, ID: id, Ends: ends}, until))
	}
	const (
		handshake = codes.Unavailable
		gate      = codes.Unauthenticated
	)
	return []visitorOf{
		{name: "a local process of the core's user", conn: a.local(), is: clusterv1.Caller_CALLER_LOCAL},
		{name: "the owner's key", conn: a.remote(selfSigned(a.t, a.owner)), is: clusterv1.Caller_CALLER_OWNER},
		{name: "the owner's session", conn: session("", ownerID, soon, soon), is: clusterv1.Caller_CALLER_OWNER},
		{name: "an operator who is owner", conn: a.remote(a.operator("caro", caroID)), is: clusterv1.Caller_CALLER_OWNER},
		{name: "an operator", conn: a.remote(a.operator("alice", aliceID)), is: clusterv1.Caller_CALLER_OPERATOR},
		{name: "a viewer", conn: a.remote(a.operator("bob", bobID)), is: clusterv1.Caller_CALLER_VIEWER},
		{name: "a node of the cluster", conn: a.remote(selfSigned(a.t, member)), is: clusterv1.Caller_CALLER_NODE},

		{name: "no certificate", conn: a.remote(nil), refused: handshake},
		{name: "a foreign key", conn: a.remote(selfSigned(a.t, foreign)), refused: handshake},
		{name: "the node's own SVID", conn: a.remote(node.SVID), refused: handshake},
		{name: "another node's SVID", conn: a.remote(a.svid(foreign, "reeve-other")), refused: handshake},
		{name: "the owner's key in a certificate of the CA", conn: a.remote(a.svid(a.owner, "reeve-other")), refused: handshake},
		{name: "the owner of another cluster", conn: a.remote(selfSigned(a.t, other.owner)), refused: handshake},
		{name: "a SVID of another cluster", conn: a.remote(other.svid(foreign, "reeve-other")), refused: handshake},
		{name: "an operator's session by a foreign CA", conn: a.remote(other.operator("alice", aliceID)), refused: handshake},
		{name: "the owner's session by a foreign CA", refused: handshake, conn: a.remote(other.holder(names.Session{ID: ownerID, Ends: soon}, soon))},
		{name: "a certificate that outlives its session", conn: session("alice", aliceID, past, soon), refused: handshake},

		{name: "a session that has ended", conn: session("alice", aliceID, past, past), refused: gate, says: "reeve login"},
		{name: "a session's certificate that has run out", conn: session("alice", aliceID, soon, past), refused: gate, says: "reeve login"},
		{name: "a revoked operator", conn: a.remote(a.operator("mallory", oldID)), refused: gate, says: "none of this cluster's operators any more"},
		{name: "an operator who was added again", conn: a.remote(a.operator("dave", oldID)), refused: gate, says: "added anew"},
		{name: "an operator by the key", conn: a.remote(selfSigned(a.t, daves)), refused: gate, says: "reeve login"},
		{name: "an operator of a role of the future", conn: a.remote(a.operator("erin", oldID)), refused: gate, says: "upgrade"},
		{name: "the session of an owner of the past", conn: session("", oldID, soon, soon), refused: gate, says: "reeve login"},
	}
}
