package output_test

import (
	"time"

	"github.com/reeveproject/reeve/cli/output"
)

func sampleTicket() output.Ticket {
	return output.Ticket{
		ID: "0123456789abcdef", Created: at(time.Hour), CreatedBy: "owner", Expires: at(-23 * time.Hour), Uses: 3, Used: 1, Roles: []string{"consensus", "hostsfile"},
		Labels: map[string]string{"rack": "7"}, Note: "rack \x1b[2J7",
	}
}

func sampleChange(action, state string, dryRun bool) output.NodeChange {
	return output.NodeChange{
		NodeID: sampleNode, Action: action, DryRun: dryRun, State: state, Roles: []string{"consensus", "curator"}, Labels: map[string]string{"rack": "7", "zone": "a"},
		Drained: action == "drain", Bypassed: []string{},
	}
}

// sampleNodes are nodes in every stage of their lives.
func sampleNodes() output.Nodes {
	registration := func() *output.Registration {
		return &output.Registration{
			TicketID: "0123456789abcdef", PeerAddress: "192.0.2.20:40000", Addresses: []string{"192.0.2.20"}, Version: "0.2.0", Sealer: "tpm2", Volume: "luks",
			Roles: []string{"consensus", "hostsfile"}, Time: at(time.Hour),
		}
	}
	node := func(state string) output.Node {
		return output.Node{
			ID: otherNode, State: state, Since: at(time.Minute), PublicKey: "AAAA", Fingerprint: "SHA256:AAAA", Labels: map[string]string{}, Addresses: []string{},
			Missing: []output.MissingPart{}, Generation: 1, Created: at(time.Hour), Assigned: []output.Assignment{{Role: "consensus"}, {Role: "hostsfile", Leaving: true}}, Roles: []output.Role{},
			Registration: registration(),
		}
	}
	waits, joins, twin := node("New"), node("Up"), node("Up")
	waits.Registration.Automatic, waits.Registration.Volume = true, "plain"
	joins.Reported, joins.Healthy, joins.Drained, joins.Version, joins.Volume, joins.Addresses = at(time.Second), true, true, "0.2.0", "luks", []string{"192.0.2.20"}
	joins.Store = &output.StoreMembership{MemberID: "8e9e", Learner: true, Step: "waits until the member has the log", Stuck: true}
	joins.Membership = &output.Membership{State: "Split", Reason: "no curator answers", Since: at(time.Minute)}
	twin.Problem, twin.Store = "two machines have its key: switch one off, then `reeve node accept`", &output.StoreMembership{MemberID: "8e9e"}
	gone := node("Decommissioned")
	gone.Assigned, gone.Store = []output.Assignment{}, &output.StoreMembership{Step: "its member is taken out"}
	return output.Nodes{Nodes: []output.Node{waits, joins, twin, gone}}
}
