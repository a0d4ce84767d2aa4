package management

import (
	"bytes"
	"context"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// CheckRoles holds a record with other roles than before, which may be nil, against the rules of the whole cluster, as every change of roles is. field is where
// the roles are in the request, for messages.
func CheckRoles(state *store.State, before, after *clusterv1.NodeRecord, field string) error {
	return check(state, before, after, field)
}

// ApproveNode implements clusterv1.ManagementServiceServer.
func (s *Service) ApproveNode(ctx context.Context, request *clusterv1.ApproveNodeRequest) (*clusterv1.ApproveNodeResponse, error) {
	var problems rules.Problems
	if len(request.GetPublicKey()) > 0 {
		problems = rules.PublicKey("public_key", request.GetPublicKey())
	}
	problems = append(problems, rules.Assignments("roles", request.GetRoles())...)
	if len(request.GetRoles()) > 0 && !request.GetSetRoles() {
		problems = append(problems, rules.Problem{Field: "roles", Message: "they take the place of what the node asked for only where set_roles is set"})
	}
	problems = append(problems, oneLine("labels", request.GetLabels())...)
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	approved := false
	node, err := s.changeNode(ctx, request, func(state *store.State, before *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error) {
		after, err := s.approve(state, before, request)
		approved = after != nil
		return after, err
	})
	if err != nil {
		return nil, err
	}
	if approved {
		s.made(ctx, request.GetDryRun(), "node approved", "node", node.GetId(), "roles", names(node.GetRoles()), "generation", node.GetGeneration())
	}
	return &clusterv1.ApproveNodeResponse{Node: node}, nil
}

// approve returns the record of a node that is approved; nil: it was before.
func (s *Service) approve(state *store.State, before *clusterv1.NodeRecord, request *clusterv1.ApproveNodeRequest) (*clusterv1.NodeRecord, error) {
	id := before.GetId()
	if key := request.GetPublicKey(); len(key) > 0 && !bytes.Equal(key, before.GetPublicKey()) {
		return nil, answer.Errorf(codes.Aborted, "node %s does not have the key that was looked at: look at it again (`reeve node status %s`) and decide anew", id, id)
	}
	switch before.GetState() {
	case clusterv1.NodeState_NODE_STATE_NEW, clusterv1.NodeState_NODE_STATE_STANDBY:
		if registration := before.GetRegistration(); tickets.Unanswered(state, registration) {
			return nil, answer.Errorf(codes.FailedPrecondition, "node %s has registered with ticket %s, and who made that, %s, was revoked or replaced: it would not become a member; remove it "+
				"(`reeve node delete %s`), and register the machine with another ticket", id, registration.GetTicketId(), registration.GetTicketCreatedBy(), id)
		}
		if before.GetState() == clusterv1.NodeState_NODE_STATE_STANDBY {
			return nil, nil
		}
	case clusterv1.NodeState_NODE_STATE_UP:
		return nil, nil
	default:
		return nil, answer.Errorf(codes.FailedPrecondition, "node %s leaves the cluster or has left it (its state is %s), and is never again a member: "+
			"a machine comes back with new keys, by a ticket (`reeve ticket create`)", id, stateName(before.GetState()))
	}
	after := proto.CloneOf(before)
	after.State, after.Since = clusterv1.NodeState_NODE_STATE_STANDBY, timestamppb.New(s.config.Now())
	after.Generation++
	after.Labels = labelled(before.GetLabels(), request.GetLabels())
	asked := before.GetRegistration().GetRoles()
	if request.GetSetRoles() {
		asked = request.GetRoles()
	}
	after.Roles = rules.Assign(asked, after.GetGeneration())
	if err := answer.Invalid(append(rules.Labels("labels", after.GetLabels()), rules.RoomForLabels("labels", clusterv1.Caller_CALLER_OWNER, state.Nodes, after)...)); err != nil {
		return nil, err
	}
	if err := answer.Invalid(rules.RoomForNode("roles", clusterv1.Caller_CALLER_OWNER, state.Nodes, after)); err != nil {
		return nil, err
	}
	return after, check(state, before, after, "roles")
}

// AcceptNode implements clusterv1.ManagementServiceServer.
func (s *Service) AcceptNode(ctx context.Context, request *clusterv1.AcceptNodeRequest) (*clusterv1.AcceptNodeResponse, error) {
	var id string
	_, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		var err error
		if id, err = find(state, request.GetNodeId()); err != nil {
			return nil, err
		}
		switch node := state.Nodes[id]; node.GetState() {
		case clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
		default:
			return nil, answer.Errorf(codes.FailedPrecondition, "node %s is no member of the cluster (its state is %s), and no start of it is taken for a member's",
				id, stateName(node.GetState()))
		}
		known, err := s.config.Store.ReadNode(ctx, id)
		if err != nil {
			return nil, err
		}
		if known.Incarnations[id] == nil && known.Refused[id] == nil {
			return nil, nil // the next start is taken anyway
		}
		return &store.Change{Accepted: []string{id}}, nil
	})
	if err != nil {
		return nil, err
	}
	got, err := s.GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: id})
	if err != nil {
		return nil, err
	}
	node := got.GetNode()
	if request.GetDryRun() {
		node.Problem = problem.Join(problem.OfNode(node))
	}
	s.made(ctx, request.GetDryRun(), "the next start of a node is accepted", "node", id)
	return &clusterv1.AcceptNodeResponse{Node: node}, nil
}

// SetLabels implements clusterv1.ManagementServiceServer.
func (s *Service) SetLabels(ctx context.Context, request *clusterv1.SetLabelsRequest) (*clusterv1.SetLabelsResponse, error) {
	if err := answer.Invalid(append(rules.Labels("labels", request.GetLabels()), oneLine("labels", request.GetLabels())...)); err != nil {
		return nil, err
	}
	caller, _ := auth.CallerOf(ctx)
	node, err := s.changeNode(ctx, request, func(state *store.State, before *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error) {
		if before.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			return nil, answer.Errorf(codes.FailedPrecondition, "node %s was removed from the cluster: its record is kept as it was", before.GetId())
		}
		labels := labelled(before.GetLabels(), request.GetLabels())
		if maps.Equal(labels, before.GetLabels()) {
			return nil, nil
		}
		after := proto.CloneOf(before)
		after.Labels = labels
		after.Generation++
		return after, answer.Invalid(append(rules.Labels("labels", labels), rules.RoomForLabels("labels", caller.Kind, state.Nodes, after)...))
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "labels set", "node", node.GetId(), "generation", node.GetGeneration())
	return &clusterv1.SetLabelsResponse{Node: node}, nil
}

// labelled is labels after a change, in which an empty value takes one away.
func labelled(before, change map[string]string) map[string]string {
	after := maps.Clone(before)
	if after == nil {
		after = make(map[string]string)
	}
	maps.Copy(after, change)
	maps.DeleteFunc(after, func(key, value string) bool {
		changed, named := change[key]
		return value == "" && named && changed == ""
	})
	return after
}
