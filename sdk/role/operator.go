package role

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/proto/identity"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Operator is the operator at the other end of a connection, as its session's certificate proved.
type Operator struct {
	// Name of the operator; empty for the holder of the owner key.
	Name string
	// ID of the operator's record, or of the owner key. It tells apart operators of the same name.
	ID string
	// Role is what the operator may do in the cluster; OPERATOR_ROLE_OWNER for the holder of the owner key.
	Role hostv1.OperatorRole
	// Expires is when the connection's certificate expires.
	Expires time.Time
}

// String is "owner" or "operator <name>".
func (o Operator) String() string {
	if o.Name == "" {
		return "owner"
	}
	return "operator " + o.Name
}

// OperatorOf returns the operator of a connection that a Listener with AllowOperators accepted; false if it is not an operator's.
func OperatorOf(conn net.Conn) (Operator, bool) {
	known, ok := conn.(*peerConn)
	if !ok || known.operator == nil {
		return Operator{}, false
	}
	return known.operator.Operator, true
}

// OperatorFromContext returns the operator of a call that a gRPC or net/http server on a Listener with AllowOperators handles, as PeerFromContext
// does for instances.
func OperatorFromContext(ctx context.Context) (Operator, bool) {
	if known, ok := ctx.Value(operatorKey{}).(Operator); ok {
		return known, true
	}
	if caller, ok := peer.FromContext(ctx); ok {
		if info, ok := caller.AuthInfo.(AuthInfo); ok && info.Operator != nil {
			return *info.Operator, true
		}
	}
	return Operator{}, false
}

type operatorKey struct{}

// operatorProof is an authenticated operator. Its Role is set before it is admitted, and stays.
type operatorProof struct {
	Operator
}

var errNoOperator = errors.New("the cluster has no such operator")

// present fails unless the cluster has the operator in the role in which it was admitted.
func (p *operatorProof) present(now *hostv1.Operators) error {
	role, err := roleOf(now, p.Name, p.ID)
	if err != nil {
		return err
	}
	if p.Role != role {
		return fmt.Errorf("%w in its role at the time of the connection: %s", errNoOperator, p)
	}
	return nil
}

// roleOf returns the present role of a session's operator.
func roleOf(now *hostv1.Operators, name, id string) (hostv1.OperatorRole, error) {
	if name == "" {
		if now.GetOwnerKeyId() == "" || now.GetOwnerKeyId() != id {
			return 0, fmt.Errorf("%w: the session belongs to another owner key", errNoOperator)
		}
		return hostv1.OperatorRole_OPERATOR_ROLE_OWNER, nil
	}
	for _, operator := range now.GetOperators() {
		if operator.GetName() == name && operator.GetId() == id && id != "" && operator.GetRole() != hostv1.OperatorRole_OPERATOR_ROLE_UNSPECIFIED {
			return operator.GetRole(), nil
		}
	}
	return 0, fmt.Errorf("%w: operator %s of that session", errNoOperator, name)
}

// verifyAny is verify for a listener that also admits operators.
func (c *peerConn) verifyAny(trust *trust, own *x509.Certificate) func(tls.ConnectionState) error {
	instance := c.verify(trust, own)
	return func(state tls.ConnectionState) error {
		session, err := identity.VerifySession(state.PeerCertificates, trust.certificates, trust.domain, time.Now())
		if errors.Is(err, identity.ErrNoSession) {
			return instance(state)
		}
		if err != nil {
			return err
		}
		c.chain, c.ends = state.PeerCertificates, own.NotAfter
		if end := c.chain[0].NotAfter; end.Before(c.ends) {
			c.ends = end
		}
		c.operator = &operatorProof{Operator{Name: session.Operator, ID: session.ID, Expires: c.chain[0].NotAfter}}
		c.verifiedBy.Store(trust)
		return nil
	}
}
