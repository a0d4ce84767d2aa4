package nodes

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// IssueSVID implements clusterv1.NodeServiceServer.
func (s *Service) IssueSVID(ctx context.Context, _ *clusterv1.IssueSVIDRequest) (*clusterv1.IssueSVIDResponse, error) {
	id, err := s.calls(ctx)
	if err != nil {
		return nil, err
	}
	state, err := s.config.Store.ReadNode(ctx, id)
	if err != nil {
		return nil, err
	}
	node := state.Nodes[id]
	if node == nil {
		return nil, gone(id)
	}
	authority, err := ca.Load(ctx, s.config.Store)
	if err != nil {
		return nil, err
	}
	svid, err := authority.IssueNode(node.GetPublicKey(), s.config.Now())
	if err != nil {
		return nil, err
	}
	s.note(ctx, store.Issued{Node: id, Certificate: svid[0]})
	return &clusterv1.IssueSVIDResponse{Svid: svid, CaCertificates: state.CA}, nil
}

// IssueRoleSVID implements clusterv1.NodeServiceServer.
func (s *Service) IssueRoleSVID(ctx context.Context, request *clusterv1.IssueRoleSVIDRequest) (*clusterv1.IssueRoleSVIDResponse, error) {
	id, err := s.calls(ctx)
	if err != nil {
		return nil, err
	}
	problems := rules.RoleName("role", request.GetRole())
	key, err := identity.RequestedKey(request.GetCertificateRequest())
	if err != nil {
		problems = append(problems, rules.Problem{Field: "certificate_request", Message: err.Error()})
	}
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	state, err := s.config.Store.ReadNode(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.runs(ctx, state.Nodes[id], id, request.GetRole()); err != nil {
		return nil, err
	}
	authority, err := ca.Load(ctx, s.config.Store)
	if err != nil {
		return nil, err
	}
	svid, err := authority.IssueRole(id, request.GetRole(), key, s.config.Now())
	if err != nil {
		return nil, err
	}
	s.note(ctx, store.Issued{Node: id, Role: request.GetRole(), Certificate: svid[0]})
	return &clusterv1.IssueRoleSVIDResponse{Svid: svid, CaCertificates: state.CA}, nil
}

// runs returns why a node does not run a role, as it is decided. Only of a role that leaves all records are read: whether it has left says the consensus store.
func (s *Service) runs(ctx context.Context, node *clusterv1.NodeRecord, id, role string) error {
	if node == nil {
		return gone(id)
	}
	assignment := assigned(node, role)
	if assignment.GetLeaving() {
		state, err := s.config.Store.ReadRecords(ctx)
		if err != nil {
			return err
		}
		if assignment = assigned(state.Nodes[id], role); assignment.GetLeaving() && state.Left(id) {
			assignment = nil
		}
	}
	if assignment == nil {
		return answer.Errorf(codes.NotFound, "the role %s is not assigned to node %s", role, id)
	}
	return nil
}

// assigned returns the assignment of a role to a node; nil: it has none.
func assigned(node *clusterv1.NodeRecord, role string) *clusterv1.RoleAssignment {
	for _, assignment := range node.GetRoles() {
		if assignment.GetRole() == role {
			return assignment
		}
	}
	return nil
}

// note keeps a certificate for the list of those in use. That it cannot be kept, as in a store that is full, is no reason to leave a node without. One that renews another that lives, and was asked
// for from the same network, has no entry in the audit log: that of the first stands, or that of what changed the roles of the node.
func (s *Service) note(ctx context.Context, issued store.Issued) {
	issued.Network = audit.CallOf(ctx).Network()
	renewed, err := s.config.Store.NoteIssued(ctx, issued)
	if renewed {
		audit.CallOf(ctx).Renews()
	}
	if err != nil {
		s.config.Log.Warn("a certificate was issued that is not in the list of those in use", "node", issued.Node, "role", issued.Role, "error", err)
	}
}
