package management

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// AddOperator implements clusterv1.ManagementServiceServer. The operator that a dry run returns has no ID: it is drawn when it is made.
func (s *Service) AddOperator(ctx context.Context, request *clusterv1.AddOperatorRequest) (*clusterv1.AddOperatorResponse, error) {
	if err := answer.Invalid(rules.Operator(request.GetName(), request.GetRole(), request.GetPublicKey())); err != nil {
		return nil, err
	}
	caller, _ := auth.CallerOf(ctx)
	wanted := &clusterv1.Operator{
		Name: request.GetName(), Role: request.GetRole(), PublicKey: request.GetPublicKey(),
		Created: timestamppb.New(s.config.Now()), CreatedBy: caller.String(),
	}
	if !request.GetDryRun() {
		wanted.Id = newID()
	}
	state, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) { return addOperator(state, wanted) })
	if err != nil {
		return nil, err
	}
	added := state.Operators[wanted.GetName()]
	s.made(ctx, request.GetDryRun(), "operator added", "operator", added.GetName(), "role", roleName(added.GetRole()))
	return &clusterv1.AddOperatorResponse{Operator: added}, nil
}

func addOperator(state *store.State, wanted *clusterv1.Operator) (*store.Change, error) {
	if had := state.Operators[wanted.GetName()]; had != nil {
		sameKey, sameRole := bytes.Equal(had.GetPublicKey(), wanted.GetPublicKey()), had.GetRole() == wanted.GetRole()
		if sameKey && sameRole {
			return nil, nil
		}
		difference := "key"
		if sameKey {
			difference = "role, which is " + roleName(had.GetRole())
		}
		return nil, answer.Errorf(codes.AlreadyExists, "there is an operator %q already, with another %s: revoke it first (`reeve operator revoke %s`), or choose another name",
			had.GetName(), difference, had.GetName())
	}
	if holder := rules.KeyHolder(state, wanted.GetPublicKey()); holder != "" {
		return nil, answer.Errorf(codes.AlreadyExists, "the key is %s: an operator needs a key of its own, or nobody could tell who calls", holder)
	}
	made := make(rules.Made)
	for _, operator := range state.Operators {
		made.Add(operator.GetCreatedBy())
	}
	if full := made.Full(wanted.GetCreatedBy()); full != "" {
		return nil, answer.Errorf(codes.ResourceExhausted, "no operator can be added: %s; revoke some (`reeve operator list`, `reeve operator revoke NAME`)", full)
	}
	return &store.Change{Operators: []*clusterv1.Operator{wanted}}, nil
}

// ListOperators implements clusterv1.ManagementServiceServer.
func (s *Service) ListOperators(ctx context.Context, _ *clusterv1.ListOperatorsRequest) (*clusterv1.ListOperatorsResponse, error) {
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	return &clusterv1.ListOperatorsResponse{Operators: state.OperatorList(), OwnerPublicKey: state.Cluster.GetOwnerPublicKey()}, nil
}

// RevokeOperator implements clusterv1.ManagementServiceServer. An operator may revoke itself: the answer is the last that it gets. What tickets it made are worth nothing
// without it, and the machines that wait by them never become members.
func (s *Service) RevokeOperator(ctx context.Context, request *clusterv1.RevokeOperatorRequest) (*clusterv1.RevokeOperatorResponse, error) {
	var revoked *clusterv1.Operator
	var worthless []*clusterv1.Ticket
	var waiting []string
	state, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		if revoked = state.Operators[request.GetName()]; revoked == nil {
			return nil, answer.Errorf(codes.NotFound, "there is no operator %s; %s", quote(request.GetName()), operatorList(state))
		}
		worthless, waiting = tickets.MadeBy(state, revoked), tickets.WaitingBy(state, revoked)
		return &store.Change{Revoked: []string{revoked.GetName()}}, nil
	})
	if err != nil {
		return nil, err
	}
	caller, _ := auth.CallerOf(ctx)
	itself := caller.Person != nil && caller.Person.ID == revoked.GetId()
	s.made(ctx, request.GetDryRun(), "operator revoked", "operator", revoked.GetName(), "role", roleName(revoked.GetRole()), "itself", itself, "tickets", len(worthless), "waiting", len(waiting))
	if !request.GetDryRun() {
		s.sweep(ctx, state)
	}
	return &clusterv1.RevokeOperatorResponse{Operator: revoked, Tickets: worthless, WaitingNodes: waiting}, nil
}

// newID draws the ID of a record.
func newID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

func roleName(role clusterv1.OperatorRole) string {
	return strings.ToLower(strings.TrimPrefix(role.String(), "OPERATOR_ROLE_"))
}

// operatorList names the operators for a message, which must stay readable.
func operatorList(state *store.State) string {
	const most = 10
	operators := state.OperatorList()
	if len(operators) == 0 {
		return "there is none but the holder of the owner key"
	}
	var names []string
	for _, operator := range operators[:min(most, len(operators))] {
		names = append(names, operator.GetName())
	}
	list := "the operators are " + strings.Join(names, ", ")
	if more := len(operators) - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more (`reeve operator list`)", more)
	}
	return list
}
