package enrolment

import (
	"context"
	"crypto/subtle"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/nodes"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// cukSize is the length of the cluster's half of the key of a volume in bytes.
const cukSize = 32

// Commit implements clusterv1.EnrolmentServiceServer.
func (s *Service) Commit(ctx context.Context, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	c, err := s.from(ctx, byNodeKey)
	if err != nil {
		return nil, err
	}
	_, node, err := s.record(ctx, c)
	if err != nil {
		return nil, err
	}
	problems := incarnation(request.GetIncarnation())
	if n := len(request.GetCuk()); n != 0 && n != cukSize {
		problems = append(problems, rules.Problem{Field: "cuk", Message: fmt.Sprintf("it has %d bytes in place of %d, or none for a volume that is not encrypted", n, cukSize)})
	}
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	if node.GetState() != clusterv1.NodeState_NODE_STATE_UP && node.GetState() != clusterv1.NodeState_NODE_STATE_DECOMMISSIONING {
		committed := false
		state, err := s.config.Store.Update(ctx, audit.CallOf(ctx), func(state *store.State) (*store.Change, error) {
			change, err := s.commit(state, c, request)
			committed = change != nil
			return change, err
		})
		switch {
		case err != nil:
			return nil, err
		case committed:
			s.config.Log.Info("a node has become a member", "node", c.id, "roles", len(state.Nodes[c.id].GetRoles()))
			return s.committed(ctx, state, c)
		}
	}
	// It is a member already: the answer was lost, or something pretends to be it. It gets another certificate, of which a note is written.
	if err := s.config.Starts.Begin(c.id); err != nil {
		return nil, err
	}
	if err := s.same(ctx, c, request.GetCuk()); err != nil {
		return nil, err
	}
	known, err := s.config.Store.ReadNode(ctx, c.id)
	if err != nil {
		return nil, err
	}
	if _, _, err := s.config.Starts.Admit(ctx, known, c.id, request.GetIncarnation()); err != nil {
		return nil, err
	}
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	return s.committed(ctx, state, c)
}

// commit decides whether a node becomes a member; nil: it is one already.
func (s *Service) commit(state *store.State, c caller, request *clusterv1.CommitRequest) (*store.Change, error) {
	before := recordOf(state, c.key)
	switch before.GetState() {
	case clusterv1.NodeState_NODE_STATE_STANDBY:
	case clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
		return nil, nil
	case clusterv1.NodeState_NODE_STATE_DECOMMISSIONED:
		return nil, answer.Removed(before, state.Generation)
	default:
		return nil, answer.Errorf(codes.FailedPrecondition, "node %s is not approved yet: `reeve node approve %s`", c.id, c.id)
	}
	if registration := before.GetRegistration(); tickets.Unanswered(state, registration) {
		return nil, answer.Errorf(codes.PermissionDenied, "node %s has registered with ticket %s, and who made that, %s, was revoked or replaced before it became a member: remove the node "+
			"(`reeve node delete %s`), and register the machine with another ticket", c.id, registration.GetTicketId(), registration.GetTicketCreatedBy(), c.id)
	}
	// A ticket of an earlier version may have approved by itself what none gives any more.
	if registration := before.GetRegistration(); registration.GetAutomatic() {
		for _, role := range registration.GetRoles() {
			if capability := rules.Guarded(state, role.GetRole()); capability != "" {
				return nil, answer.Errorf(codes.PermissionDenied, "node %s was approved by its ticket %s, which gives no role that provides %s as %q does: remove the node (`reeve node delete %s`), "+
					"and register the machine without the role", c.id, registration.GetTicketId(), capability, role.GetRole(), c.id)
			}
		}
	}
	after := proto.CloneOf(before)
	after.State, after.Since = clusterv1.NodeState_NODE_STATE_UP, timestamppb.New(s.config.Now())
	after.Generation++
	return &store.Change{
		Nodes:      []*clusterv1.NodeRecord{after},
		Commitment: &store.Commitment{Node: c.id, CUK: request.GetCuk(), Incarnation: request.GetIncarnation()},
	}, nil
}

// same returns why a member may not commit itself with a CUK: another one is known, and the volume that it opens would be lost with it.
func (s *Service) same(ctx context.Context, c caller, cuk []byte) error {
	kept, err := s.config.Store.ReadCUK(ctx, c.id)
	if err != nil {
		return err
	}
	defer clear(kept)
	if subtle.ConstantTimeCompare(kept, cuk) == 1 {
		return nil
	}
	return answer.Errorf(codes.AlreadyExists, "node %s is a member already, and the cluster knows another half of the key of its volume: two machines have its key, or its "+
		"volume was formatted anew; remove the node (`reeve node delete %s`) and register the machine with new keys", c.id, c.id)
}

// committed is the answer for a node that is a member.
func (s *Service) committed(ctx context.Context, state *store.State, c caller) (*clusterv1.CommitResponse, error) {
	node := recordOf(state, c.key)
	if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
		return nil, answer.Removed(node, state.Generation)
	}
	authority, err := ca.Load(ctx, s.config.Store)
	if err != nil {
		return nil, err
	}
	svid, err := authority.IssueNode(c.key, s.config.Now())
	if err != nil {
		return nil, err
	}
	if _, err := s.config.Store.NoteIssued(ctx, store.Issued{Node: c.id, Certificate: svid[0]}); err != nil {
		s.config.Log.Warn("a certificate was issued that is not in the list of those in use", "node", c.id, "error", err)
	}
	return &clusterv1.CommitResponse{
		Node: node, Plugins: nodes.Plugins(state, node), Policy: state.Demands(), CaCertificates: state.CA, NodeSvid: svid,
		OwnerPublicKey: state.Cluster.GetOwnerPublicKey(), Curators: s.curators(), ClusterUser: s.config.ClusterUser,
	}, nil
}

// incarnation checks the start that a request is of.
func incarnation(given *clusterv1.Incarnation) (problems rules.Problems) {
	if _, err := clusterv1.ParseIncarnation(given.Header()); err != nil {
		problems = append(problems, rules.Problem{Field: "incarnation", Message: "it is a number from 1 on and a nonce of 16 bytes"})
	}
	return problems
}
