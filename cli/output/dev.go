package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// DevStatus is the document of `reeve dev status`, and of `reeve dev up` with several nodes.
type DevStatus struct {
	Directory string    `json:"directory"`
	Nodes     []DevNode `json:"nodes"`
}

// DevNode is a node of a dev directory.
type DevNode struct {
	// Number is 1 for the node that made the cluster.
	Number    int    `json:"number"`
	Directory string `json:"directory"`
	// PID is the process ID of its reeved; 0: none runs.
	PID int `json:"pid"`
	// Left are the roles whose processes run on although reeved does not.
	Left []string `json:"left"`
	// Namespace is the name of its network namespace; empty: it has none of its own.
	Namespace string `json:"namespace"`
	// Address is that which it has on this machine, also while it does not run.
	Address string `json:"address"`
	// Status is what the node says of itself; null: it does not run, or does not answer.
	Status *Status `json:"status"`
}

// NewDevNode makes the document of a node of a dev directory. status is nil if it does not say anything.
func NewDevNode(number int, directory string, pid int, status *nodev1.Status) DevNode {
	node := DevNode{Number: number, Directory: directory, PID: pid, Left: []string{}}
	if status != nil {
		node.Status = new(NewStatus(status))
	}
	return node
}

func (d DevStatus) table(w io.Writer, _ time.Time) {
	row(w, "NUMBER", "NODE", "PROCESS", "MEMBERSHIP", "ADDRESS", "NAMESPACE", "ROLES", "PROBLEM", "DIRECTORY")
	for _, node := range d.Nodes {
		process := "none"
		if node.PID != 0 {
			process = fmt.Sprint(node.PID)
		}
		id, membership, addresses, roles, problems := "", "", node.Address, "", ""
		if len(node.Left) > 0 {
			roles = "run on without reeved: " + strings.Join(node.Left, ",")
		}
		if status := node.Status; status != nil {
			id, membership, addresses = status.Node.ID, membershipText(status.Membership), strings.Join(status.Node.Addresses, ",")
			roles, problems = strings.Join(status.roleStates(), ","), problem.Join(status.Problems)
		}
		row(w, fmt.Sprint(node.Number), id, process, membership, addresses, node.Namespace, roles, problems, node.Directory)
	}
}

// roleStates are the roles of a node.
func (s Status) roleStates() []string {
	var texts []string
	for _, role := range s.Roles {
		texts = append(texts, roleState(role))
	}
	return texts
}

// roleState is a role, with its state if that is not Ready.
func roleState(role *clusterv1.InstanceStatus) string {
	if state := State(role.GetState()); state != "Ready" {
		return role.GetRole() + "(" + state + ")"
	}
	return role.GetRole()
}
