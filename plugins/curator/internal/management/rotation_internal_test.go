package management

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TestUnaware holds that a machine with a ticket from before the new CA is named, also where the ticket is of the same second, and one with a later ticket is not.
func TestUnaware(t *testing.T) {
	made := time.Date(2026, 11, 29, 10, 14, 34, 900e6, time.UTC)
	authority, err := ca.Create("reeve-c", made)
	if err != nil {
		t.Fatal(err)
	}
	for ticket, named := range map[time.Duration]bool{-time.Hour: true, -500 * time.Millisecond: true, time.Second: false} {
		state := &store.State{
			CA:      [][]byte{authority.Certificate()},
			Nodes:   map[string]*clusterv1.NodeRecord{"waits": {Id: "waits", State: clusterv1.NodeState_NODE_STATE_NEW, Registration: &clusterv1.Registration{TicketId: "t"}}},
			Tickets: map[string]*curatorv1.Ticket{"t": {Created: timestamppb.New(made.Add(ticket))}},
		}
		if machines := unaware(state); (len(machines) == 1) != named {
			t.Errorf("a ticket made %s after the CA: %q", ticket, machines)
		}
	}
}
