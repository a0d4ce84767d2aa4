package tickets_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// FuzzRegistration holds whatever a machine may say against the rules and a ticket: no secret but its own proves a ticket, what passes is bounded and can be
// shown, and what a ticket allows is within it.
func FuzzRegistration(f *testing.F) {
	bounded, secret := tickets.New(&curatorv1.Ticket{
		Expires: timestamppb.New(time.Unix(2_000_000_000, 0)), Uses: 1, Roles: []string{"store"}, Labels: map[string]string{"rack": "1"},
	})
	automatic, _ := tickets.New(&curatorv1.Ticket{Uses: 1, AutoApprove: true})
	for _, request := range []*clusterv1.RegisterRequest{
		{}, {
			TicketId: bounded.GetId(), TicketSecret: secret[:31], Roles: []*clusterv1.RoleAssignment{{Role: "store", Configuration: "{}"}}, Labels: map[string]string{"rack": "1", "a": "b"},
			Addresses: []string{"192.0.2.1"}, JoinPublicKey: make([]byte, 32), Version: "0.1.0", Sealer: "file", Volume: "luks",
		}, {Roles: []*clusterv1.RoleAssignment{{Role: "api"}}, Labels: map[string]string{"rack": "2"}},
	} {
		encoded, err := proto.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		request := new(clusterv1.RegisterRequest)
		if err := proto.Unmarshal(encoded, request); err != nil {
			t.Skip()
		}
		if tickets.Proves(bounded, request.GetTicketSecret()) != (string(request.GetTicketSecret()) == string(secret)) || tickets.Proves(nil, request.GetTicketSecret()) {
			t.Fatal("a secret proves a ticket that it is not of")
		}
		problems := rules.Registration(request)
		for _, problem := range problems {
			if problem.Field == "" || problem.Message == "" {
				t.Errorf("problem %+v", problem)
			}
		}
		if len(problems) > 0 {
			return
		}
		if proto.Size(request) > rules.MaxRegistration || len(request.GetRoles()) > rules.MaxRoles {
			t.Fatalf("%d bytes pass", proto.Size(request))
		}
		assigned := rules.Assign(request.GetRoles(), 7)
		for i, role := range assigned {
			if i > 0 && role.GetRole() <= assigned[i-1].GetRole() || role.GetGeneration() != 7 || role.GetLeaving() {
				t.Fatalf("%v", assigned)
			}
		}
		if tickets.Forbids(automatic, request.GetRoles(), request.GetLabels()) == "" && len(assigned) > 0 {
			t.Fatalf("a ticket that names no roles allows %v by itself", assigned)
		}
		if tickets.Forbids(automatic, nil, request.GetLabels()) == "" && len(request.GetLabels()) > 0 {
			t.Fatalf("a ticket that names no labels allows %v by itself", request.GetLabels())
		}
		if tickets.Forbids(bounded, request.GetRoles(), request.GetLabels()) != "" {
			return
		}
		labels := tickets.Labels(bounded, request.GetLabels())
		if labels["rack"] != "1" || len(assigned) > 1 || len(assigned) == 1 && assigned[0].GetRole() != "store" {
			t.Fatalf("the ticket allows %v with %v", assigned, labels)
		}
		for key, value := range labels {
			if !limits.Line(key) || !limits.Line(value) {
				t.Fatalf("a label that cannot be shown: %q=%q", key, value)
			}
		}
	})
}
