package rules

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// MostMade is how many a cluster keeps of each of tickets, operators and machines that wait.
	MostMade = 1000
	// MostOfOne is how many of them one operator has made, and MostOfOperators how many all have. The rest is for the holder of the owner key.
	MostOfOne       = 250
	MostOfOperators = 900
	// MaxNodes is the size of the records of all nodes together in bytes: every curator holds all of them.
	MaxNodes = 64 << 20
)

// Made is how many of something there are, by the name of the operator who made them; empty: the holder of the owner key.
type Made map[string]int

// Add counts one more. It takes a maker as tickets and as records of operators name them.
func (m Made) Add(maker string) { m[makerName(maker)]++ }

func makerName(maker string) string {
	name := strings.TrimPrefix(maker, "operator ")
	if name == "owner" { // no operator is called so
		return ""
	}
	return name
}

// MakerKind is whom a maker counts as where operators leave room to owners.
func MakerKind(maker string) clusterv1.Caller {
	if makerName(maker) == "" {
		return clusterv1.Caller_CALLER_OWNER
	}
	return clusterv1.Caller_CALLER_OPERATOR
}

// Full returns why a maker may not make one more; empty: there is room.
func (m Made) Full(maker string) string {
	all, name := 0, makerName(maker)
	for _, made := range m {
		all += made
	}
	switch of := all - m[""]; {
	case all >= MostMade:
		return fmt.Sprintf("there are %d already, which is all that a cluster keeps", all)
	case name == "":
	case m[name] >= MostOfOne:
		return fmt.Sprintf("operator %s has made %d of them, and one operator may have made %d", name, m[name], MostOfOne)
	case of >= MostOfOperators:
		return fmt.Sprintf("operators have made %d of them, and the other %d that a cluster keeps are for the holder of the owner key", of, MostMade-MostOfOperators)
	}
	return ""
}

// WaitingMachines counts the machines that wait, by who made the tickets that they have come with: those for approval, or those to become members that no operator has approved.
func WaitingMachines(state *store.State, automatic bool) Made {
	in := clusterv1.NodeState_NODE_STATE_NEW
	if automatic {
		in = clusterv1.NodeState_NODE_STATE_STANDBY
	}
	made := make(Made)
	for _, node := range state.Nodes {
		if node.GetState() == in && node.GetRegistration().GetAutomatic() == automatic {
			made.Add(node.GetRegistration().GetTicketCreatedBy())
		}
	}
	return made
}

// ofOperators is how much of a room operators may fill. What they leave is for owners, who so can always go on.
func ofOperators(room int, by clusterv1.Caller) int {
	if by == clusterv1.Caller_CALLER_OPERATOR {
		return room / 8 * 7
	}
	return room
}

// RoomForNode checks that there is room for the record of a node beside those of the other nodes. What takes no more than before always has it.
func RoomForNode(field string, by clusterv1.Caller, nodes map[string]*clusterv1.NodeRecord, after *clusterv1.NodeRecord) (problems Problems) {
	total, room := proto.Size(after), ofOperators(MaxNodes, by)
	if total <= proto.Size(nodes[after.GetId()]) {
		return nil
	}
	for id, node := range nodes {
		if id != after.GetId() {
			total += proto.Size(node)
		}
	}
	if total > room {
		problems.add(field, "the records of all nodes would have %d bytes together, and every curator holds all of them, at most %d: make configurations of roles shorter, or first remove nodes and roles that nobody needs", total, room)
	}
	return problems
}

// RoomForLabels checks that a node has room for its labels, and the directory beside those of the other nodes. What takes no more than before always has it.
func RoomForLabels(field string, by clusterv1.Caller, nodes map[string]*clusterv1.NodeRecord, after *clusterv1.NodeRecord) (problems Problems) {
	size := func(node *clusterv1.NodeRecord) int {
		return proto.Size(&clusterv1.NodeRecord{Labels: node.GetLabels()})
	}
	total, room := size(after), ofOperators(limits.DirectoryLabels, by)
	if total <= size(nodes[after.GetId()]) {
		return nil
	}
	if total > limits.NodeLabels {
		problems.add(field, "the labels of a node would have %d bytes, and each node has room for %d of them: make them shorter, or first remove labels that nobody needs", total, limits.NodeLabels)
		return problems
	}
	for id, node := range nodes {
		if id != after.GetId() && node.GetState() != clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			total += size(node)
		}
	}
	if total > room {
		problems.add(field, "the labels of all nodes would have %d bytes together, and every node is sent at most %d of them: first remove labels that nobody needs", total, room)
	}
	return problems
}
