package enrolment

import (
	"bytes"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Register implements clusterv1.EnrolmentServiceServer.
func (s *Service) Register(ctx context.Context, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	c, err := s.from(ctx, byNodeKey)
	if err != nil {
		return nil, err
	}
	done, err := s.enter(ctx, &c, s.registering, "register")
	if err != nil {
		return nil, err
	}
	defer done()
	// Who has neither a record nor the secret of a ticket is told so, and costs nobody anything more.
	state, err := s.config.Store.ReadEnrolment(ctx, c.id, request.GetTicketId())
	if err != nil {
		return nil, err
	}
	if node := recordOf(state, c.key); node != nil {
		if !stands(node) {
			return nil, s.failed(c, answer.Removed(node, state.Generation))
		}
		s.recognised(ctx, node.GetId())
		return registered(state, node)
	}
	if err := s.shows(state, request); err != nil {
		return nil, s.failed(c, err)
	}
	s.recognised(ctx, c.id)
	if err := answer.Invalid(rules.Registration(request)); err != nil {
		return nil, s.failed(c, err)
	}
	state, err = s.config.Store.Update(ctx, audit.CallOf(ctx), func(state *store.State) (*store.Change, error) {
		if recordOf(state, c.key) != nil {
			return nil, nil // the call was made twice
		}
		return s.admit(ctx, state, c, request)
	})
	if err != nil {
		return nil, s.failed(c, err)
	}
	node := state.Nodes[c.id]
	s.config.Log.Info("a machine registered", "node", c.id, "ticket", request.GetTicketId(), "state", node.GetState().String(),
		"roles", len(node.GetRegistration().GetRoles()))
	return registered(state, node)
}

// registered is the answer for a node that has a record.
func registered(state *store.State, node *clusterv1.NodeRecord) (*clusterv1.RegisterResponse, error) {
	if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
		return nil, answer.Removed(node, state.Generation)
	}
	return &clusterv1.RegisterResponse{Node: node, CaCertificates: state.CA}, nil
}

// shows returns why a ticket is not shown that is taken. Only who has its secret is told what is wrong with it.
func (s *Service) shows(state *store.State, request *clusterv1.RegisterRequest) error {
	kept := state.Tickets[request.GetTicketId()]
	if !tickets.Proves(kept, request.GetTicketSecret()) {
		return answer.Errorf(codes.Unauthenticated, "the ticket is none that cluster %s takes: it may have been revoked, have expired or be of another cluster; "+
			"have a new one made (`reeve ticket create`)", state.Cluster.GetClusterId())
	}
	if why := tickets.Worthless(kept, s.config.Now()); why != "" {
		return answer.Errorf(codes.Unauthenticated, "ticket %s is not taken any more: %s; have a new one made (`reeve ticket create`)", kept.GetId(), why)
	}
	if tickets.Orphaned(state, kept) {
		return answer.Errorf(codes.Unauthenticated, "ticket %s is not taken any more: who made it was revoked or replaced; have a new one made (`reeve ticket create`)", kept.GetId())
	}
	return nil
}

// admit decides about a machine that has no record.
func (s *Service) admit(ctx context.Context, state *store.State, c caller, request *clusterv1.RegisterRequest) (*store.Change, error) {
	if err := s.shows(state, request); err != nil {
		return nil, err
	}
	kept := state.Tickets[request.GetTicketId()]
	if why := tickets.Forbids(kept, request.GetRoles(), request.GetLabels()); why != "" {
		return nil, answer.Veiled(codes.PermissionDenied, "ticket "+kept.GetId()+" does not allow what the machine asks for",
			"ticket %s does not allow what the machine asks for: %s; ask for less, or have another ticket made (`reeve ticket create`)", kept.GetId(), why)
	}
	if err := givesGuarded(state, kept, request.GetRoles()); err != nil {
		return nil, err
	}
	if holder := rules.KeyHolder(state, c.key); holder != "" {
		return nil, answer.Errorf(codes.AlreadyExists, "the key of the machine is %s: a node needs a key of its own", holder)
	}
	join := request.GetJoinPublicKey()
	if holder := rules.KeyHolder(state, join); holder != "" {
		return nil, answer.Errorf(codes.AlreadyExists, "the join key of the machine is %s: it needs one of its own", holder)
	}
	if bytes.Equal(join, c.key) {
		return nil, answer.Errorf(codes.InvalidArgument, "the join key of the machine is its node key: it needs another one, since it is used while the volume is locked")
	}
	if full := rules.WaitingMachines(state, kept.GetAutoApprove()).Full(kept.GetCreatedBy()); full != "" {
		waitsFor, remedy := "for approval", "approve or remove some (`reeve node list`)"
		if kept.GetAutoApprove() {
			waitsFor, remedy = "to become members", "wait until some are, or remove those that do not come (`reeve node list`, `reeve node delete ID`)"
		}
		return nil, answer.Errorf(codes.ResourceExhausted, "too many machines wait %s, by the tickets that they have come with: %s; %s, then try again", waitsFor, full, remedy)
	}
	node, err := s.newcomer(ctx, state, c, request, kept)
	if err != nil {
		return nil, err
	}
	if full := rules.RoomForNode("", rules.MakerKind(kept.GetCreatedBy()), state.Nodes, node); len(full) > 0 {
		return nil, answer.Errorf(codes.ResourceExhausted, "there is no room for another machine: %s; then try again", full[0].Message)
	}
	return &store.Change{Nodes: []*clusterv1.NodeRecord{node}, Tickets: []*curatorv1.Ticket{tickets.Spend(kept)}}, nil
}

// givesGuarded returns why a ticket that approves by itself does not give some roles. None is made that names such a role; an earlier version did, and the catalog may
// have changed since.
func givesGuarded(state *store.State, kept *curatorv1.Ticket, roles []*clusterv1.RoleAssignment) error {
	for _, role := range roles {
		if capability := rules.Guarded(state, role.GetRole()); capability != "" && kept.GetAutoApprove() {
			return answer.Errorf(codes.PermissionDenied, "ticket %s approves by itself, and gives no role that provides %s as %q does: register without the role, and have an owner assign it "+
				"then, or with another ticket (`reeve ticket create`)", kept.GetId(), capability, role.GetRole())
		}
	}
	return nil
}

// newcomer makes the record of a machine that a ticket lets in.
func (s *Service) newcomer(
	ctx context.Context, state *store.State, c caller, request *clusterv1.RegisterRequest, kept *curatorv1.Ticket,
) (*clusterv1.NodeRecord, error) {
	now := timestamppb.New(s.config.Now())
	labels := tickets.Labels(kept, request.GetLabels())
	carries := &clusterv1.NodeRecord{Id: c.id, Labels: labels}
	if err := answer.Invalid(append(rules.Labels("labels", labels), rules.RoomForLabels("labels", clusterv1.Caller_CALLER_OWNER, state.Nodes, carries)...)); err != nil {
		return nil, err
	}
	asked := rules.Assign(request.GetRoles(), 1)
	node := &clusterv1.NodeRecord{
		Id: c.id, PublicKey: c.key, State: clusterv1.NodeState_NODE_STATE_NEW, Labels: labels, Generation: 1, Created: now, Since: now,
		JoinPublicKey: request.GetJoinPublicKey(),
		Registration: &clusterv1.Registration{
			TicketId: kept.GetId(), PeerAddress: address(ctx), Addresses: request.GetAddresses(),
			Version: line(request.GetVersion(), limits.Version), Sealer: line(request.GetSealer(), limits.Name), Volume: line(request.GetVolume(), limits.Name),
			Roles: asked, Time: now, Automatic: kept.GetAutoApprove(), TicketCreatedBy: kept.GetCreatedBy(), TicketMadeBy: kept.GetMadeBy(),
		},
	}
	// Roles that could not be assigned are told now, to who asks for them, and not to who approves.
	approved := &clusterv1.NodeRecord{
		Id: c.id, PublicKey: c.key, State: clusterv1.NodeState_NODE_STATE_STANDBY, Labels: labels, Generation: 1, Roles: asked, Created: now, Since: now,
		JoinPublicKey: node.GetJoinPublicKey(), Registration: node.GetRegistration(),
	}
	if err := s.config.CheckRoles(state, nil, approved, "roles"); err != nil {
		return nil, err
	}
	if kept.GetAutoApprove() {
		return approved, nil
	}
	return node, nil
}

// line is a text that a machine says of itself as others can be shown it.
func line(text string, most int) string {
	return limits.Cut(limits.Clean(limits.Cut(text, most)), most)
}

// address is from where a call comes, as host:port.
func address(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return ""
	}
	return limits.Cut(from.Addr.String(), limits.Address)
}
