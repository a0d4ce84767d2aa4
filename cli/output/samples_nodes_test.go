package output_test

import (
	"time"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

func sampleTicket() *clusterv1.Ticket {
	return &clusterv1.Ticket{
		Id: "0123456789abcdef", Created: stamp(time.Hour), CreatedBy: "owner", Expires: stamp(-23 * time.Hour), Uses: 3, Used: 1, Roles: []string{"consensus", "hostsfile"},
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
	registration := func() *clusterv1.Registration {
		return &clusterv1.Registration{
			TicketId: "0123456789abcdef", PeerAddress: "192.0.2.20:40000", Addresses: []string{"192.0.2.20"}, Version: "0.2.0", Sealer: "tpm2", Volume: "luks",
			Roles: []*clusterv1.RoleAssignment{{Role: "consensus"}, {Role: "hostsfile"}}, Time: stamp(time.Hour),
		}
	}
	node := func(state string) output.Node {
		return output.Node{
			ID: otherNode, State: state, Since: at(time.Minute), PublicKey: "AAAA", Fingerprint: "SHA256:AAAA", Labels: map[string]string{}, Addresses: []string{},
			Missing: []*clusterv1.Missing{}, Generation: 1, Created: at(time.Hour), Assigned: []*clusterv1.RoleAssignment{{Role: "consensus"}, {Role: "hostsfile", Leaving: true}}, Roles: []*clusterv1.InstanceStatus{},
			Registration: registration(),
		}
	}
	waits, joins, twin := node("New"), node("Up"), node("Up")
	waits.Registration.Automatic, waits.Registration.Volume = true, "plain"
	joins.Reported, joins.Healthy, joins.Drained, joins.Version, joins.Volume, joins.Addresses = at(time.Second), true, true, "0.2.0", "luks", []string{"192.0.2.20"}
	joins.Store = &clusterv1.StoreMembership{MemberId: "8e9e", Learner: true, Step: "waits until the member has the log", Stuck: true}
	joins.Membership = &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT, Reason: "no curator answers", Since: stamp(time.Minute)}
	twin.Problem, twin.Store = "two machines have its key: switch one off, then `reeve node accept`", &clusterv1.StoreMembership{MemberId: "8e9e"}
	waits.Problem, joins.Problem = "waits for `reeve node approve`", joins.Store.GetStep()
	gone := node("Decommissioned")
	gone.Assigned, gone.Store = []*clusterv1.RoleAssignment{}, &clusterv1.StoreMembership{Step: "its member is taken out"}
	return output.NewNodes([]output.Node{waits, joins, twin, gone})
}
