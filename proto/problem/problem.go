package problem

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Join makes one text of several problems; empty: there is none.
func Join(problems []string) string { return strings.Join(problems, "; ") }

// OfNode returns the problems of a node that the cluster derives from what it knows of it. What a node reported that is not heard of any more is old, and left out.
func OfNode(node *clusterv1.Node) (problems []string) {
	switch node.GetRecord().GetState() {
	case clusterv1.NodeState_NODE_STATE_NEW:
		return []string{"waits for `reeve node approve`"}
	case clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
	default:
		return nil
	}
	if node.GetHealthy() {
		problems = reported(node.GetStatus())
	} else {
		problems = append(problems, "it sends no heartbeats: start the node, or see that it reaches a curator")
	}
	return append(problems, ofMember(node.GetStore())...)
}

// ofMember returns the problems of a node's member of the consensus store.
func ofMember(member *clusterv1.StoreMembership) (problems []string) {
	if damage := member.GetDamage(); damage != "" {
		problems = append(problems, "its member of the consensus store is damaged: "+damage)
	}
	if member.GetSilent() {
		problems = append(problems, "its member of the consensus store does not answer the store's leader")
	}
	if unreached := member.GetUnreached(); len(unreached) > 0 {
		problems = append(problems, fmt.Sprintf("its member of the consensus store does not reach %s, which others reach", those(unreached)))
	}
	if member.GetStuck() {
		problems = append(problems, member.GetStep())
	}
	return problems
}

// those names the members of some nodes.
func those(nodes []string) string {
	if len(nodes) == 1 {
		return "that of " + nodes[0]
	}
	return "those of " + strings.Join(nodes, ", ")
}

// OfStatus returns the problems of a node that it sees itself, besides those of its volume and of its membership, of which it says more.
func OfStatus(status *nodev1.Status) []string {
	problems := reported(status.GetNode())
	// A role that provides the store says of it what the store says.
	if store := status.GetStore().GetProblem(); store != "" && !strings.Contains(Join(problems), limits.Cut(store, limits.Reason/2)) {
		problems = append(problems, "the consensus store: "+store)
	}
	return problems
}

// reported returns the problems that are in what a node reports.
func reported(status *clusterv1.NodeStatus) (problems []string) {
	if problem := status.GetProblem(); problem != "" {
		problems = append(problems, problem)
	}
	return append(problems, OfRoles(status.GetInstances())...)
}

// OfRoles returns the problems of a node's roles.
func OfRoles(instances []*clusterv1.InstanceStatus) (problems []string) {
	for _, instance := range instances {
		if problem := OfRole(instance); problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// OfRole says of a role that does not do its work how it is and why; empty: it does its work, or is about to.
func OfRole(instance *clusterv1.InstanceStatus) string {
	state := ""
	switch instance.GetState() {
	case hostv1.InstanceState_INSTANCE_STATE_FAILED:
		state = "Failed"
	case hostv1.InstanceState_INSTANCE_STATE_DEGRADED:
		state = "Degraded"
	case hostv1.InstanceState_INSTANCE_STATE_BACKOFF:
		state = "in Backoff"
	default:
		return ""
	}
	text := fmt.Sprintf("role %s is %s", instance.GetRole(), state)
	if reason := instance.GetReason(); reason != "" {
		text += ": " + reason
	}
	return limits.Cut(text, limits.Reason)
}

// OfStore returns the status of the consensus store on a node with what its provider's instance says, as far as the store itself says nothing: one that is Failed has not
// formed the store, and says why.
func OfStore(store *consensusv1.StoreStatus, provider *clusterv1.InstanceStatus) *consensusv1.StoreStatus {
	if store.GetProblem() != "" || OfRole(provider) == "" {
		return store
	}
	with := new(consensusv1.StoreStatus)
	if store != nil {
		with = proto.CloneOf(store)
	}
	with.Problem = OfRole(provider)
	return with
}
