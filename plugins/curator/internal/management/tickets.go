package management

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// minTicketBeginning is how much of a ticket's ID must be given.
const minTicketBeginning = 4

// CreateTicket implements clusterv1.ManagementServiceServer. The ticket that a dry run returns has no ID: it is drawn when it is made.
func (s *Service) CreateTicket(ctx context.Context, request *clusterv1.CreateTicketRequest) (*clusterv1.CreateTicketResponse, error) {
	if err := answer.Invalid(ticketProblems(request)); err != nil {
		return nil, err
	}
	curators := s.curators(ctx)
	if len(curators) == 0 {
		return nil, answer.Errorf(codes.FailedPrecondition, "no node has reported yet where its curator is reached, and a ticket says so: try again in a moment (`reeve node list`)")
	}
	now := s.config.Now()
	caller, _ := auth.CallerOf(ctx)
	made := &curatorv1.Ticket{
		Created: timestamppb.New(now), CreatedBy: tickets.OwnerName, Expires: tickets.Expires(now, request.GetLifetimeSeconds()), Uses: max(1, request.GetUses()),
		Roles: slices.Clone(request.GetRoles()), Labels: request.GetLabels(), AutoApprove: request.GetAutoApprove(), Note: request.GetNote(),
	}
	if caller.Person != nil {
		made.CreatedBy, made.MadeBy = cmp.Or(caller.Person.Operator, tickets.OwnerName), caller.Person.ID
	}
	slices.Sort(made.Roles)
	var secret []byte
	if !request.GetDryRun() {
		made, secret = tickets.New(made)
	}
	state, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		for _, role := range made.GetRoles() {
			if known, _ := state.Role(role); known == nil {
				return nil, unknownRole(state, role)
			}
			if capability := rules.Guarded(state, role); capability != "" && made.GetAutoApprove() {
				return nil, answer.Errorf(codes.FailedPrecondition, "the role %q provides %s, and a node that runs it can do in the cluster what an owner can: no ticket that approves by itself gives it; "+
					"make the ticket without --auto-approve, or without the role, and assign it to the node later (`reeve node role add`)", role, capability)
			}
		}
		if full := tickets.Made(state, now).Full(made.GetCreatedBy()); full != "" {
			return nil, answer.Errorf(codes.ResourceExhausted, "no ticket can be made: %s; revoke some (`reeve ticket list`, `reeve ticket revoke ID`)", full)
		}
		return &store.Change{Tickets: []*curatorv1.Ticket{made}}, nil
	})
	if err != nil {
		return nil, err
	}
	response := &clusterv1.CreateTicketResponse{Ticket: tickets.Shown(made)}
	if request.GetDryRun() {
		return response, nil
	}
	s.sweep(ctx, state)
	s.made(ctx, false, "ticket made", "ticket", made.GetId(), "uses", made.GetUses(), "expires", made.GetExpires().AsTime().UTC().Format(time.RFC3339), "auto_approve", made.GetAutoApprove())
	response.Text = &clusterv1.TicketText{
		TicketId: made.GetId(), Secret: secret, ClusterId: state.Cluster.GetClusterId(), Curators: curators,
	}
	if response.Text.CaPins, err = pins(state.CA); err != nil {
		return nil, err
	}
	return response, nil
}

func ticketProblems(request *clusterv1.CreateTicketRequest) (problems rules.Problems) {
	add := func(field, format string, args ...any) {
		problems = append(problems, rules.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if most := int(tickets.MaxLifetime / time.Second); int(request.GetLifetimeSeconds()) > most {
		add("lifetime_seconds", "%d s are more than the %d s (30 days) that a ticket lives at most", request.GetLifetimeSeconds(), most)
	}
	if request.GetUses() > tickets.MaxUses {
		add("uses", "%d nodes are more than the %d that register with one ticket at most", request.GetUses(), tickets.MaxUses)
	}
	if note := request.GetNote(); len(note) > tickets.MaxNote || !limits.Line(note) {
		add("note", "it has %d bytes, and must be one line of at most %d", len(note), tickets.MaxNote)
	}
	if n := len(request.GetRoles()); n > rules.MaxRoles {
		add("roles", "there are %d roles, a node runs at most %d", n, rules.MaxRoles)
		return problems
	}
	for i, role := range request.GetRoles() {
		at := fmt.Sprintf("roles[%d]", i)
		problems = append(problems, rules.RoleName(at, role)...)
		if slices.Contains(request.GetRoles()[:i], role) {
			add(at, "the role %s is listed twice", quote(role))
		}
	}
	problems = append(problems, rules.Labels("labels", request.GetLabels())...)
	problems = append(problems, rules.RoomForLabels("labels", clusterv1.Caller_CALLER_OWNER, nil, &clusterv1.NodeRecord{Labels: request.GetLabels()})...)
	return append(problems, oneLine("labels", request.GetLabels())...)
}

// oneLine checks that labels can be shown.
func oneLine(field string, labels map[string]string) (problems rules.Problems) {
	for key, value := range labels {
		if !limits.Line(key) || !limits.Line(value) {
			problems = append(problems, rules.Problem{Field: field, Message: fmt.Sprintf("a label is one line of text, and %s is not", quote(key))})
		}
	}
	return problems
}

// pins is by what a machine that comes knows the cluster: the SHA-256 of the public key of each certificate of the cluster CA.
func pins(authorities [][]byte) (pins [][]byte, err error) {
	for _, der := range authorities {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("stored CA certificate: %w", err)
		}
		pin := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
		pins = append(pins, pin[:])
	}
	return pins, nil
}

// curatorsWithin is how long the first report of a node is waited for that says where its curator is: it comes as soon as the curator serves.
const curatorsWithin = 2 * time.Second

// curators are where the cluster's curators are reached; none if nobody has said so in time.
func (s *Service) curators(ctx context.Context) []string {
	if s.config.Snapshots == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, curatorsWithin)
	defer cancel()
	snapshot, err := s.config.Snapshots.Wait(ctx, func(snapshot *cache.Snapshot) bool { return len(snapshot.Curators()) > 0 })
	if err != nil {
		return nil
	}
	return snapshot.Curators()
}

// ListTickets implements clusterv1.ManagementServiceServer.
func (s *Service) ListTickets(ctx context.Context, _ *clusterv1.ListTicketsRequest) (*clusterv1.ListTicketsResponse, error) {
	state, err := s.config.Store.ReadTickets(ctx)
	if err != nil {
		return nil, err
	}
	s.sweep(ctx, state)
	forgotten := tickets.Forgotten(state, s.config.Now())
	response := new(clusterv1.ListTicketsResponse)
	for id, kept := range state.Tickets {
		if _, gone := slices.BinarySearch(forgotten, id); !gone {
			response.Tickets = append(response.Tickets, tickets.Shown(kept))
		}
	}
	for id, problem := range state.DamagedTickets() {
		response.Tickets = append(response.Tickets, tickets.Damaged(id, problem))
	}
	slices.SortFunc(response.Tickets, func(a, b *clusterv1.Ticket) int {
		return cmp.Or(b.GetCreated().AsTime().Compare(a.GetCreated().AsTime()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return response, nil
}

// sweep removes tickets that are not even listed any more. That they cannot be removed, as in a store that is full, is no reason not to answer.
func (s *Service) sweep(ctx context.Context, state *store.State) {
	if err := s.config.Store.SweepTickets(ctx, state.Revision, tickets.Forgotten(state, s.config.Now())); err != nil {
		s.config.Log.Warn("tickets that nobody can use any more could not be removed; it is tried again", "error", err)
	}
}

// RevokeTicket implements clusterv1.ManagementServiceServer.
func (s *Service) RevokeTicket(ctx context.Context, request *clusterv1.RevokeTicketRequest) (*clusterv1.RevokeTicketResponse, error) {
	var revoked *clusterv1.Ticket
	_, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		id, err := findTicket(state, request.GetTicketId())
		if err != nil {
			return nil, err
		}
		if kept := state.Tickets[id]; kept != nil {
			revoked = tickets.Shown(kept)
		} else {
			revoked = tickets.Damaged(id, state.DamagedTickets()[id])
		}
		return &store.Change{RevokedTickets: []string{id}}, nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "ticket revoked", "ticket", revoked.GetId(), "used", revoked.GetUsed())
	return &clusterv1.RevokeTicketResponse{Ticket: revoked}, nil
}

// findTicket returns the ID of the ticket that a caller means by it or its beginning. One whose record is damaged is found by it, too.
func findTicket(state *store.State, beginning string) (string, error) {
	ids := slices.Concat(slices.Collect(maps.Keys(state.Tickets)), slices.Collect(maps.Keys(state.DamagedTickets())))
	if slices.Contains(ids, beginning) {
		return beginning, nil
	}
	if len(beginning) < minTicketBeginning {
		return "", answer.Errorf(codes.InvalidArgument, "%s is too short to name a ticket: give at least %d characters of its ID (`reeve ticket list`)",
			quote(beginning), minTicketBeginning)
	}
	matches := slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, beginning) })
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return "", answer.Errorf(codes.NotFound, "there is no ticket %s: it may have been revoked already (`reeve ticket list`)", quote(beginning))
	default:
		return "", answer.Errorf(codes.InvalidArgument, "%s is the beginning of %d tickets: give more of its ID (`reeve ticket list`)", quote(beginning), len(matches))
	}
}
