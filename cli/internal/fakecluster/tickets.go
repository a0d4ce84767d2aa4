package fakecluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// madeTicket is a ticket with its secret, which a real cluster keeps only a hash of.
type madeTicket struct {
	public *clusterv1.Ticket
	secret []byte
}

// wholeID is the ID of the cluster with as many digits as real ones have: those of tests are shorter.
func (c *Cluster) wholeID() string {
	if len(c.id) < 32 {
		return c.id + strings.Repeat("0", 32-len(c.id))
	}
	return c.id
}

// fresh returns random bytes.
func fresh(n int) []byte {
	bytes := make([]byte, n)
	_, _ = rand.Read(bytes) // It never fails.
	return bytes
}

func (m *management) CreateTicket(ctx context.Context, request *clusterv1.CreateTicketRequest) (*clusterv1.CreateTicketResponse, error) {
	for _, role := range request.GetRoles() {
		if m.cluster.offered(role) == nil {
			return nil, status.Errorf(codes.NotFound, "no plugin of the catalog offers role %s", role)
		}
	}
	c := m.cluster
	made := &clusterv1.Ticket{
		Id: hex.EncodeToString(fresh(8)), Created: timestamppb.New(c.clock), CreatedBy: callerOf(ctx).name,
		Expires: timestamppb.New(c.clock.Add(seconds(request.GetLifetimeSeconds(), 24*60*60))), Uses: max(1, request.GetUses()),
		Roles: slices.Sorted(slices.Values(request.GetRoles())), Labels: request.GetLabels(), AutoApprove: request.GetAutoApprove(), Note: request.GetNote(),
	}
	response := &clusterv1.CreateTicketResponse{Ticket: made}
	if request.GetDryRun() {
		return response, nil
	}
	kept := &madeTicket{public: made, secret: fresh(32)}
	c.tickets = append([]*madeTicket{kept}, c.tickets...)
	pin := sha256.Sum256(c.authority.certificate.RawSubjectPublicKeyInfo)
	response.Text = &clusterv1.TicketText{
		TicketId: made.GetId(), Secret: kept.secret, ClusterId: c.wholeID(), CaPins: [][]byte{pin[:]}, Curators: []string{c.curator},
	}
	return response, nil
}

func (m *management) ListTickets(context.Context, *clusterv1.ListTicketsRequest) (*clusterv1.ListTicketsResponse, error) {
	response := &clusterv1.ListTicketsResponse{}
	for _, one := range m.cluster.tickets {
		response.Tickets = append(response.Tickets, one.public)
	}
	return response, nil
}

func (m *management) RevokeTicket(_ context.Context, request *clusterv1.RevokeTicketRequest) (*clusterv1.RevokeTicketResponse, error) {
	c := m.cluster
	for i, one := range c.tickets {
		if len(request.GetTicketId()) < 4 || !strings.HasPrefix(one.public.GetId(), request.GetTicketId()) {
			continue
		}
		if !request.GetDryRun() {
			c.tickets = slices.Delete(c.tickets, i, i+1)
		}
		return &clusterv1.RevokeTicketResponse{Ticket: one.public}, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no ticket %s", request.GetTicketId())
}

// spend uses a ticket once. The cluster is locked.
func (c *Cluster) spend(id string, secret []byte) (*clusterv1.Ticket, error) {
	for _, one := range c.tickets {
		if one.public.GetId() != id || string(one.secret) != string(secret) {
			continue
		}
		if one.public.GetUsed() >= one.public.GetUses() || !c.clock.Before(one.public.GetExpires().AsTime().Add(time.Nanosecond)) {
			break
		}
		one.public.Used++
		return one.public, nil
	}
	return nil, status.Error(codes.Unauthenticated, "the ticket is none, was revoked, has expired or is spent")
}
