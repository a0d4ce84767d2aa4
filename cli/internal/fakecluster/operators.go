package fakecluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// How long certificates and sessions last, in seconds.
const (
	certificateSeconds = 60 * 60
	sessionSeconds     = 12 * 60 * 60
)

// skew is by how much certificates are good before they are issued, for clocks that differ.
const skew = time.Hour

func (m *management) GetClusterInfo(context.Context, *clusterv1.GetClusterInfoRequest) (*clusterv1.GetClusterInfoResponse, error) {
	c := m.cluster
	return &clusterv1.GetClusterInfoResponse{
		ClusterId: c.id, TrustDomain: c.authority.domain, CaCertificates: [][]byte{c.authority.certificate.Raw},
		OwnerPublicKey: c.owner, Nodes: uint32(len(c.nodes)),
	}, nil
}

func (m *management) Login(ctx context.Context, request *clusterv1.LoginRequest) (*clusterv1.LoginResponse, error) {
	c, who, now := m.cluster, callerOf(ctx), m.cluster.clock
	if c.noLogins {
		return nil, status.Error(codes.Unavailable, "the store has no leader")
	}
	session := who.session
	if session == (identity.Session{}) {
		session.ID = identity.OwnerKeyID(c.owner)
		if who.operator != nil {
			session.Operator, session.ID = who.operator.GetName(), who.operator.GetId()
		}
		session.Ends = now.Add(seconds(request.GetSessionSeconds(), sessionSeconds)).Truncate(time.Second)
	}
	until := now.Add(seconds(request.GetLifetimeSeconds(), c.lifetime))
	if until.After(session.Ends) {
		until = session.Ends
	}
	der, err := c.authority.session(session, request.GetPublicKey(), now.Add(-skew), until)
	if err != nil {
		return nil, err
	}
	response := &clusterv1.LoginResponse{
		Certificate: [][]byte{der}, SessionEnds: timestamppb.New(session.Ends), Role: clusterv1.OperatorRole_OPERATOR_ROLE_OWNER,
	}
	if who.operator != nil {
		response.Operator, response.Role = who.operator.GetName(), who.operator.GetRole()
	}
	return response, nil
}

func seconds(asked, usual uint32) time.Duration {
	if asked == 0 {
		asked = usual
	}
	return time.Duration(asked) * time.Second
}

func (m *management) AddOperator(ctx context.Context, request *clusterv1.AddOperatorRequest) (*clusterv1.AddOperatorResponse, error) {
	c := m.cluster
	for _, operator := range c.operators {
		if operator.GetName() != request.GetName() {
			continue
		}
		if operator.GetRole() != request.GetRole() || !bytes.Equal(operator.GetPublicKey(), request.GetPublicKey()) {
			return nil, status.Errorf(codes.AlreadyExists, "there is an operator %s with another key or role", operator.GetName())
		}
		return &clusterv1.AddOperatorResponse{Operator: operator}, nil
	}
	operator := &clusterv1.Operator{
		Name: request.GetName(), Role: request.GetRole(), Id: fmt.Sprintf("%032x", c.made+1), PublicKey: request.GetPublicKey(),
		Created: timestamppb.New(c.clock), CreatedBy: callerOf(ctx).name,
	}
	if !request.GetDryRun() {
		c.made++
		c.operators = append(c.operators, operator)
		slices.SortFunc(c.operators, func(a, b *clusterv1.Operator) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
	return &clusterv1.AddOperatorResponse{Operator: operator}, nil
}

func (m *management) ListOperators(context.Context, *clusterv1.ListOperatorsRequest) (*clusterv1.ListOperatorsResponse, error) {
	c := m.cluster
	return &clusterv1.ListOperatorsResponse{OwnerPublicKey: c.owner, Operators: c.operators}, nil
}

func (m *management) RevokeOperator(_ context.Context, request *clusterv1.RevokeOperatorRequest) (*clusterv1.RevokeOperatorResponse, error) {
	c := m.cluster
	for i, operator := range c.operators {
		if operator.GetName() != request.GetName() {
			continue
		}
		if !request.GetDryRun() {
			c.operators = slices.Delete(c.operators, i, i+1)
		}
		return &clusterv1.RevokeOperatorResponse{Operator: operator}, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no operator %s", request.GetName())
}

func (m *management) ListAudit(_ context.Context, request *clusterv1.ListAuditRequest) (*clusterv1.ListAuditResponse, error) {
	c := m.cluster
	response := &clusterv1.ListAuditResponse{}
	for _, entry := range slices.Backward(c.audit) {
		if request.GetBefore() != 0 && entry.GetSequence() >= request.GetBefore() {
			continue
		}
		if len(response.Entries) == int(request.GetLimit()) {
			response.More = true
			break
		}
		response.Entries = append(response.Entries, entry)
	}
	return response, nil
}

// SetLifetime sets for how many seconds certificates are good for which nothing else is asked.
func (c *Cluster) SetLifetime(seconds uint32) { c.Update(func() { c.lifetime = seconds }) }

// FailLogins has every login fail from now on, or none.
func (c *Cluster) FailLogins(fail bool) { c.Update(func() { c.noLogins = fail }) }

// Calls is how often an RPC of the cluster API was called, with any result.
func (c *Cluster) Calls(rpc string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := 0
	for _, entry := range c.audit {
		if entry.GetRpc() == rpc {
			calls++
		}
	}
	return calls
}

// AddOperator makes an operator.
func (c *Cluster) AddOperator(name string, role clusterv1.OperatorRole, key ed25519.PublicKey) error {
	var err error
	c.Update(func() {
		_, err = (&management{cluster: c}).AddOperator(context.Background(), &clusterv1.AddOperatorRequest{Name: name, Role: role, PublicKey: key})
	})
	return err
}

// RevokeOperator removes an operator.
func (c *Cluster) RevokeOperator(name string) error {
	var err error
	c.Update(func() {
		_, err = (&management{cluster: c}).RevokeOperator(context.Background(), &clusterv1.RevokeOperatorRequest{Name: name})
	})
	return err
}

// Refuse adds a call of somebody who proved nothing to the audit log, and says that more like it were left out.
func (c *Cluster) Refuse(suppressed uint64) {
	c.Update(func() {
		c.append(&clusterv1.AuditEntry{
			Caller: "unknown", Rpc: "ListNodes", Code: codes.Unauthenticated.String(), Reason: "the connection shows\x1b[2J no certificate",
			Address: "192.0.2.66:" + clientPort, Suppressed: suppressed,
		})
	})
}

// Call adds a call of the owner to the audit log.
func (c *Cluster) Call(rpc string) {
	c.Update(func() {
		c.append(&clusterv1.AuditEntry{
			Caller: "owner", Kind: clusterv1.Caller_CALLER_OWNER, Rpc: rpc, Code: codes.OK.String(), Address: "127.0.0.1:" + clientPort,
		})
	})
}

func (n *node) ReplaceOwner(_ context.Context, request *nodev1.ReplaceOwnerRequest) (*nodev1.ReplaceOwnerResponse, error) {
	if c := n.cluster; !request.GetDryRun() {
		c.owner = request.GetOwnerPublicKey()
		c.append(&clusterv1.AuditEntry{
			Caller: "core of node " + c.nodes[0].GetRecord().GetId(), Kind: clusterv1.Caller_CALLER_CORE, Address: "local", Rpc: "ReplaceOwner",
			Parameters: map[string]string{"requester": "user 0"}, Code: codes.OK.String(),
		})
	}
	return &nodev1.ReplaceOwnerResponse{}, nil
}
