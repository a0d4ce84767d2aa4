package auth

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"time"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Caller is who has called.
type Caller struct {
	Kind clusterv1.Caller
	// NodeID is set for CALLER_NODE only.
	NodeID string
	// Key is what a CALLER_NEWCOMER has proved, and all that is known of it: nobody may have heard of it before.
	Key ed25519.PublicKey
	// Person is set for everybody who is neither a node nor a newcomer.
	Person *Person

	// state is what a node was told by, and incarnation the start of its core that calls: it is the one that is taken for the node since the revision.
	// over is set if that start could not be kept: it is the one that was known before, nil if none was.
	state       *store.State
	incarnation *clusterv1.Incarnation
	revision    int64
	over        *curatorv1.KnownIncarnation
	// stands returns why a node would not be let in any more in a later state of the cluster than that of the revision read.
	stands func(*store.State) error
	read   int64
}

// Person is the holder of the owner key, or an operator.
type Person struct {
	// Operator is the operator's name; empty: the holder of the owner key.
	Operator string
	Role     clusterv1.OperatorRole
	// ID is the ID of the operator's record, or identity.OwnerKeyID of the owner key.
	ID string
	// Session is nil for one who has shown the key itself.
	Session *identity.Session
	// Until is when the certificate of a session ends; zero: there is none.
	Until time.Time
	// Revision is the revision of the store at which all this was so.
	Revision int64
}

// byKey reports whether an operator has only shown its key, which is for logging in. The owner key is enough for everything.
func (c Caller) byKey() bool {
	return c.Person != nil && c.Person.Operator != "" && c.Person.Session == nil
}

// String is who called, as the audit log calls it.
func (c Caller) String() string {
	switch {
	case c.Person != nil && c.Person.Operator != "":
		return "operator " + c.Person.Operator
	case c.Person != nil:
		return "owner"
	case c.Kind == clusterv1.Caller_CALLER_NODE:
		return "node " + c.NodeID
	}
	return "unknown"
}

type callerKey struct{}

// CallerOf returns who made a call that a Guard let through.
func CallerOf(ctx context.Context) (Caller, bool) {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	return caller, ok
}

// Check returns why a caller may not have its way any more in the state of the cluster that a decision is made from: it may have been revoked since
// the call began. Nodes are not looked at.
func (c Caller) Check(state *store.State) error {
	if c.Person != nil && !state.HasPerson(c.Person.Operator, c.Person.ID) {
		return unauthenticated("%s was revoked or replaced while the call was under way", c)
	}
	return nil
}

// owner is the holder of the owner key.
func owner(state *store.State) *Person {
	return &Person{
		Role:     clusterv1.OperatorRole_OPERATOR_ROLE_OWNER,
		ID:       identity.OwnerKeyID(ed25519.PublicKey(state.Cluster.GetOwnerPublicKey())),
		Revision: state.Revision,
	}
}

// operator is who a record is about.
func operator(state *store.State, record *clusterv1.Operator) *Person {
	return &Person{Operator: record.GetName(), Role: record.GetRole(), ID: record.GetId(), Revision: state.Revision}
}

// as makes a person a caller: CALLER_UNSPECIFIED, whom nothing is permitted, if the role is none that this version knows.
func (p *Person) as() Caller {
	kinds := map[clusterv1.OperatorRole]clusterv1.Caller{
		clusterv1.OperatorRole_OPERATOR_ROLE_OWNER:    clusterv1.Caller_CALLER_OWNER,
		clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR: clusterv1.Caller_CALLER_OPERATOR,
		clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER:   clusterv1.Caller_CALLER_VIEWER,
	}
	return Caller{Kind: kinds[p.Role], Person: p}
}

// holder returns the operator whose record pins a key, or nil.
func holder(state *store.State, key ed25519.PublicKey) *clusterv1.Operator {
	for _, operator := range state.Operators {
		if bytes.Equal(operator.GetPublicKey(), key) {
			return operator
		}
	}
	return nil
}
