package server_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// What somebody handed out lets nobody in any more once they are revoked, however much it is, and no matter who has their name then.
func TestTicketsOfRevokedOperator(t *testing.T) {
	c := newCluster(t)
	c.announce()
	anna, olga := c.addOperator("anna", roleOwner), c.addOperator("olga", roleOwner)
	annas, olgas := anna.client(), olga.client()
	create := func(by clusterv1.ManagementServiceClient) *clusterv1.CreateTicketResponse {
		t.Helper()
		made, err := by.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{AutoApprove: true, Roles: []string{"hostsfile"}, Uses: 9})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	kept, gone := create(olgas), create(annas)
	for range 140 { // more than one transaction can remove, which takes those with the lowest IDs first
		if made := create(annas); made.GetTicket().GetId() > gone.GetTicket().GetId() {
			gone = made
		}
	}
	in, waits := c.machine(), c.machine()
	in.register(gone, "hostsfile")
	if _, err := in.commit(); err != nil {
		t.Fatal(err)
	}
	waits.register(gone, "hostsfile")
	// Nor does it help that somebody has looked at a machine: that may have been anna.
	looked, approved := c.machine(), c.machine()
	byHand, err := annas.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{Roles: []string{"hostsfile"}, Uses: 2})
	if err != nil {
		t.Fatal(err)
	}
	looked.register(byHand, "hostsfile")
	approved.register(byHand, "hostsfile")
	approve := func(m *machine) error {
		_, err := c.asOwner().ApproveNode(t.Context(), &clusterv1.ApproveNodeRequest{NodeId: m.id})
		return err
	}
	if err := approve(approved); err != nil {
		t.Fatal(err)
	}
	waiting := []string{waits.id, looked.id, approved.id}
	slices.Sort(waiting)
	dry, err := c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "anna", DryRun: true})
	if err != nil || len(dry.GetTickets()) != 142 || !slices.Equal(dry.GetWaitingNodes(), waiting) {
		t.Errorf("what would go: %d tickets, %v of %v, %v", len(dry.GetTickets()), dry.GetWaitingNodes(), waiting, err)
	}
	late := c.machine()
	late.register(gone, "hostsfile")
	waiting = append(waiting, late.id)
	slices.Sort(waiting)
	answer, err := c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "anna"})
	if err != nil || len(answer.GetTickets()) != 142 || !slices.Equal(answer.GetWaitingNodes(), waiting) {
		t.Errorf("%d tickets, %v of %v, %v", len(answer.GetTickets()), answer.GetWaitingNodes(), waiting, err)
	}
	wantCode(t, approve(looked), codes.FailedPrecondition, "anna", "reeve node delete "+looked.id)
	refused := func(ticket *clusterv1.CreateTicketResponse) {
		t.Helper()
		m := c.machine()
		_, err := m.enrolment().Register(t.Context(), m.request(ticket, "hostsfile"))
		wantCode(t, err, codes.Unauthenticated, "reeve ticket create")
	}
	refused(gone)
	// Nor do they make anybody known, who could then do what strangers cannot.
	for _, entry := range c.entries(store.AuditRefused) {
		if entry.GetRpc() == "Register" {
			t.Errorf("the ticket has made somebody known: %s", told(entry))
		}
	}
	if list := c.tickets(); len(list) != 1 || list[0].GetId() != kept.GetTicket().GetId() {
		t.Errorf("%d tickets are listed", len(list))
	}
	c.addOperator("anna", roleOwner) // somebody else
	refused(gone)
	// They are no more in the store after a while, and stood in nobody's way meanwhile.
	for range 2 {
		c.tickets()
	}
	if state, err := store.New(store.Config{Client: c.client(), AnswerWithin: patience}).ReadRecords(t.Context()); err != nil || len(state.Tickets) != 1 {
		t.Errorf("%d tickets are kept, %v", len(state.Tickets), err)
	}
	// Whoever came in before is in, and whoever has waited for that moment is not.
	if _, err := in.commit(); err != nil {
		t.Error(err)
	}
	for _, m := range []*machine{waits, late, looked, approved} {
		_, err = m.commit()
		if m == looked {
			wantCode(t, err, codes.FailedPrecondition)
			continue
		}
		wantCode(t, err, codes.PermissionDenied, "anna", "reeve node delete "+m.id)
	}
	// An owner key that is replaced is revoked, too.
	owners := c.ticket(&clusterv1.CreateTicketRequest{AutoApprove: true, Roles: []string{"hostsfile"}})
	standby, others, replaced := c.machine(), c.machine(), newKey(t)
	standby.register(owners, "hostsfile")
	others.register(kept, "hostsfile")
	for range 2 { // the answer may be lost
		replacing, err := c.curator.service.ReplaceOwner(t.Context(), &clusterv1.ReplaceOwnerRequest{OwnerPublicKey: public(replaced), Requester: "root"})
		if err != nil || !slices.Equal(replacing.GetWaitingNodes(), []string{standby.id}) {
			t.Fatalf("%v, %v: %s waits", replacing, err, standby.id)
		}
	}
	c.owner = replaced
	wantCode(t, approve(standby), codes.FailedPrecondition, "owner", "reeve node delete "+standby.id)
	refused(owners)
	c.machine().register(kept, "hostsfile")
}

// Nobody becomes one of the trusted base by what a text says: an owner looks at the machine, or gives it the role.
func TestTicketGivesNoGuardedRole(t *testing.T) {
	c := newCluster(t)
	c.announce()
	for _, role := range []string{"store", "api"} {
		_, err := c.asOwner().CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{AutoApprove: true, Roles: []string{"hostsfile", role}})
		wantCode(t, err, codes.FailedPrecondition, role, "reeve.c", "without --auto-approve")
	}
	// Nor is it given by one that an earlier version made.
	made := c.ticket(&clusterv1.CreateTicketRequest{Roles: []string{"store"}, Uses: 2})
	c.update(func(state *store.State) *store.Change {
		earlier := proto.CloneOf(state.Tickets[made.GetTicket().GetId()])
		earlier.AutoApprove = true
		return &store.Change{Tickets: []*curatorv1.Ticket{earlier}}
	})
	m := c.machine()
	_, err := m.enrolment().Register(t.Context(), m.request(made, "store"))
	wantCode(t, err, codes.PermissionDenied, "store", "reeve.consensus.v1")
	// Nor to a machine that such a ticket has let in, and that was not a member yet.
	waits := c.machine()
	waits.register(c.ticket(&clusterv1.CreateTicketRequest{AutoApprove: true, Roles: []string{"hostsfile"}}), "hostsfile")
	c.update(func(state *store.State) *store.Change {
		node := proto.CloneOf(state.Nodes[waits.id])
		node.Registration.Roles = []*clusterv1.RoleAssignment{{Role: "store", Generation: 1}}
		node.Roles, node.Generation = node.Registration.Roles, node.Generation+1
		return &store.Change{Nodes: []*clusterv1.NodeRecord{node}}
	})
	_, err = waits.commit()
	wantCode(t, err, codes.PermissionDenied, "store", "reeve.consensus.v1", waits.id)
	looked := c.ticket(&clusterv1.CreateTicketRequest{Roles: []string{"store"}})
	if node := m.register(looked, "store"); node.GetState() != stateNew {
		t.Errorf("it is %s", node.GetState())
	}
}
