package enrolment

import (
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func newPublicKey(t *testing.T) ed25519.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// A machine counts for the room of all records, as what the maker of its ticket adds: an operator's machines leave some for owners. One that is refused may come again.
func TestRoomForMachines(t *testing.T) {
	now := time.Now()
	service := NewService(Config{
		Now:        func() time.Time { return now },
		CheckRoles: func(*store.State, *clusterv1.NodeRecord, *clusterv1.NodeRecord, string) error { return nil },
	})
	ofOperators := rules.MaxNodes / 8 * 7
	for name, test := range map[string]struct {
		maker string
		taken int
		want  codes.Code
	}{
		"an operator's":                          {"olga", ofOperators - 10_000, codes.OK},
		"an operator's, and the rest is owners'": {"olga", ofOperators, codes.ResourceExhausted},
		"an owner's":                             {tickets.OwnerName, ofOperators, codes.OK},
		"an owner's, and all is taken":           {tickets.OwnerName, rules.MaxNodes, codes.ResourceExhausted},
	} {
		for _, automatic := range []bool{false, true} {
			kept, secret := tickets.New(&curatorv1.Ticket{CreatedBy: test.maker, MadeBy: map[string]string{"olga": "1"}[test.maker], Uses: 1, AutoApprove: automatic, Expires: tickets.Expires(now, 0)})
			key := newPublicKey(t)
			_, err := service.admit(t.Context(), &store.State{
				Cluster: &curatorv1.Cluster{}, Tickets: map[string]*curatorv1.Ticket{kept.GetId(): kept},
				Operators: map[string]*clusterv1.Operator{"olga": {Name: "olga", Id: "1"}},
				Nodes:     map[string]*clusterv1.NodeRecord{"other": {Id: "other", Roles: []*clusterv1.RoleAssignment{{Configuration: strings.Repeat("x", test.taken)}}}},
			}, caller{key: key, id: identity.NodeID(key)}, &clusterv1.RegisterRequest{TicketId: kept.GetId(), TicketSecret: secret, JoinPublicKey: newPublicKey(t)})
			if got := status.Code(answer.Error(err)); got != test.want {
				t.Errorf("a machine with %s ticket, automatic %t: %v", name, automatic, err)
			}
		}
	}
}

// Those that an operator has approved do not take the places of those that become members without.
func TestMachinesThatWait(t *testing.T) {
	node := func(in clusterv1.NodeState, automatic bool) *clusterv1.NodeRecord {
		return &clusterv1.NodeRecord{State: in, Registration: &clusterv1.Registration{Automatic: automatic, TicketCreatedBy: "olga"}}
	}
	state := &store.State{Nodes: map[string]*clusterv1.NodeRecord{
		"new": node(clusterv1.NodeState_NODE_STATE_NEW, false), "approved": node(clusterv1.NodeState_NODE_STATE_STANDBY, false),
		"first": node(clusterv1.NodeState_NODE_STATE_STANDBY, true), "second": node(clusterv1.NodeState_NODE_STATE_STANDBY, true), "up": node(clusterv1.NodeState_NODE_STATE_UP, true),
	}}
	for automatic, want := range map[bool]int{false: 1, true: 2} {
		if waiting := rules.WaitingMachines(state, automatic)["olga"]; waiting != want {
			t.Errorf("automatic %t: %d machines wait, want %d", automatic, waiting, want)
		}
	}
}
