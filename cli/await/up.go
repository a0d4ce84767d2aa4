package await

import (
	"fmt"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Up is the condition that a node is Home and that all of its roles work: they are Ready, or Degraded.
type Up struct {
	// NodeID is for the advice of what to do.
	NodeID string

	condition
	// others says why the node waits for other members of the store; empty: it does not.
	others string
}

// NewUp returns the condition for a node.
func NewUp(nodeID string) *Up {
	u := &Up{NodeID: nodeID, condition: condition{wanted: "the node is Home and its roles are up", unmet: "not all roles of the node are up"}}
	u.judge = func(known Seen) Verdict { return u.of(known.Status) }
	return u
}

// Others says why the node cannot be Home before other nodes are started or unlocked; empty: it can.
func (u *Up) Others() string { return u.others }

func (u *Up) of(status *nodev1.Status) Verdict {
	u.others = ""
	if status == nil {
		return Verdict{Outcome: Pending, Text: "the node has not reported its status"}
	}
	membership, store := status.GetMembership(), status.GetStore()
	if state := membership.GetState(); state != hostv1.MembershipState_MEMBERSHIP_STATE_HOME {
		verdict := Verdict{Outcome: Pending, Text: output.WithReason("the node is "+output.State(state), membership.GetReason())}
		switch closed := output.ExplainClosed(status.GetStorage()); {
		case closed != "":
			verdict.Text = output.Clean(closed)
		case state == hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT && store.GetFormed() && !store.GetQuorum() && len(store.GetMembers()) > 1:
			u.others = output.WithReason("the store has no majority of its members", store.GetProblem())
		case state == hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT && !store.GetFormed():
			// The store of a cluster that was off does not form before a majority is there, and its role says so.
			u.others = waits(store, status.GetNode().GetInstances())
		case state == hostv1.MembershipState_MEMBERSHIP_STATE_DISOWNING:
			verdict.Outcome, verdict.Next = Refused, "The node was removed from its cluster, for good."
		}
		if u.others != "" {
			verdict.Outcome, verdict.Text = Doubtful, output.Clean(u.others)
		}
		return verdict
	}
	for _, instance := range status.GetNode().GetInstances() {
		state := instance.GetState()
		if state == hostv1.InstanceState_INSTANCE_STATE_READY || state == hostv1.InstanceState_INSTANCE_STATE_DEGRADED {
			continue
		}
		verdict := Verdict{Outcome: Pending, Text: output.WithReason(fmt.Sprintf("role %s is %s", instance.GetRole(), output.State(state)), instance.GetReason())}
		if failure := instance.GetLastFailure(); failure != nil {
			verdict.Details = failureDetails(failure)
		}
		if state == hostv1.InstanceState_INSTANCE_STATE_FAILED {
			verdict.Outcome = Refused
			verdict.Next = fmt.Sprintf("Run `reeve logs %[1]s %[2]s` to see what it wrote, and `reeve node role restart %[1]s %[2]s` to start it again.", u.NodeID, instance.GetRole())
		}
		return verdict
	}
	return Verdict{Outcome: Done, Text: "the node is Home and its roles are up"}
}

// waits says why the role that provides the store runs badly; empty: it does not, or another node has the store. The node names the role by what it says of its store.
func waits(store *consensusv1.StoreStatus, instances []*clusterv1.InstanceStatus) string {
	for _, instance := range instances {
		said := problem.OfRole(instance)
		if instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_DEGRADED && instance.GetReason() != "" && store.GetProblem() != "" && strings.Contains(said, store.GetProblem()) {
			return said
		}
	}
	return ""
}
