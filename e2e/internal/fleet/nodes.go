// Package fleet looks at clusters of several nodes as the command line shows them, sets machines up for them, and takes their nodes down.
package fleet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// Patience only turns a hang into a failure.
const Patience = 2 * time.Minute

// Node is one of those that `reeve node list -o json` shows.
type Node struct {
	ID         string            `json:"id"`
	State      string            `json:"state"`
	Healthy    bool              `json:"healthy"`
	Drained    bool              `json:"drained"`
	Problem    string            `json:"problem"`
	Labels     map[string]string `json:"labels"`
	Addresses  []string          `json:"addresses"`
	Membership *struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	} `json:"membership"`
	Store *struct {
		MemberID string `json:"member_id"`
		Learner  bool   `json:"learner"`
		Step     string `json:"step"`
		Stuck    bool   `json:"stuck"`
	} `json:"store"`
	Assigned []struct {
		Role    string `json:"role"`
		Leaving bool   `json:"leaving"`
	} `json:"assigned"`
	Roles []devcluster.Role `json:"roles"`
}

func (n Node) Role(name string) devcluster.Role {
	for _, role := range n.Roles {
		if role.Role == name {
			return role
		}
	}
	return devcluster.Role{}
}

func (n Node) Has(role string) bool {
	return slices.ContainsFunc(n.Assigned, func(assigned struct {
		Role    string `json:"role"`
		Leaving bool   `json:"leaving"`
	}) bool {
		return assigned.Role == role
	})
}

// String is the node for people who look at a failed test.
func (n Node) String() string {
	text := fmt.Sprintf("%s %s healthy=%t problem=%q", n.ID, n.State, n.Healthy, n.Problem)
	if n.Membership != nil {
		text += " " + n.Membership.State + " (" + n.Membership.Reason + ")"
	}
	if n.Store != nil {
		text += fmt.Sprintf(" store=%+v", *n.Store)
	}
	for _, role := range n.Roles {
		text += fmt.Sprintf(" %s=%s(%s)", role.Role, role.State, role.Reason)
	}
	return text
}

// List returns the nodes of the cluster as the command line shows them, asked at one node; none, and why, if it does not answer.
func List(t testing.TB, c *devcluster.Cluster, asked int) ([]Node, string) {
	t.Helper()
	result := c.StartAlone(t, "node", "list", "-o", "json", "--dir", c.NodeDirectory(asked)).Wait(t, Patience)
	if result.Code != 0 {
		return nil, result.String()
	}
	var document struct {
		Nodes []Node `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	lines := make([]string, len(document.Nodes))
	for i, node := range document.Nodes {
		lines[i] = node.String()
	}
	return document.Nodes, strings.Join(lines, "\n")
}

// Status returns the status of the node with a number, as its own socket tells it, and what was printed.
func Status(t testing.TB, c *devcluster.Cluster, number int) (devcluster.Status, string) {
	t.Helper()
	result := c.StartAlone(t, "status", "-o", "json", "--dir", c.NodeDirectory(number)).Wait(t, Patience)
	status, err := devcluster.ParseStatus(result.Stdout)
	if err != nil || result.Code != 0 {
		return devcluster.Status{}, result.String()
	}
	return status, result.String()
}

// AwaitStatus waits until the node with a number says that it is as it should be.
func AwaitStatus(t testing.TB, c *devcluster.Cluster, number int, what string, as func(devcluster.Status) bool) {
	t.Helper()
	eventually.True(t, Patience, what, func() (bool, string) {
		status, seen := Status(t, c, number)
		return as(status), seen
	})
}

// AwaitDisowned waits until the node with a number knows that it was removed, and runs no role.
func AwaitDisowned(t testing.TB, c *devcluster.Cluster, number int) {
	t.Helper()
	AwaitStatus(t, c, number, "the node knows that it was removed", func(status devcluster.Status) bool {
		return status.Membership.State == "Disowning" && len(status.PIDs()) == 0
	})
}

// ID is the ID of the node with a number.
func ID(t testing.TB, c *devcluster.Cluster, number int) string {
	t.Helper()
	status, seen := Status(t, c, number)
	if status.Node.ID == "" {
		t.Fatal(seen)
	}
	return status.Node.ID
}

// Await waits until the nodes are as they should be, asked at one node.
func Await(t testing.TB, c *devcluster.Cluster, asked int, timeout time.Duration, what string, as func([]Node) bool) []Node {
	t.Helper()
	var found []Node
	eventually.True(t, timeout, what, func() (bool, string) {
		nodes, seen := List(t, c, asked)
		found = nodes
		return nodes != nil && as(nodes), seen
	})
	return found
}

// ByID returns the node with an ID.
func ByID(nodes []Node, id string) Node {
	for _, node := range nodes {
		if node.ID == id {
			return node
		}
	}
	return Node{}
}

// Kill kills every process of one node, as if its machine had lost its power.
func Kill(t testing.TB, c *devcluster.Cluster, number int, id string) {
	t.Helper()
	for processes := Processes(t, c, number, id); len(processes) > 0; processes = Processes(t, c, number, id) {
		for _, process := range processes {
			c.KillProcess(t, process)
		}
	}
}

// Processes are the processes of one node, the core first.
func Processes(t testing.TB, c *devcluster.Cluster, number int, id string) (found []procfs.Process) {
	t.Helper()
	parameters := filepath.Join(c.NodeDirectory(number), "reeved.yaml")
	for _, process := range c.Processes(t) {
		switch {
		case slices.Contains(process.Arguments, parameters):
			found = slices.Insert(found, 0, process)
		case strings.HasPrefix(process.Variable(devcluster.Instance), id+"/"):
			found = append(found, process)
		}
	}
	return found
}

// Instance are the processes of the instance of a role of a node.
func Instance(t testing.TB, c *devcluster.Cluster, id, role string) []procfs.Process {
	t.Helper()
	return slices.DeleteFunc(c.Processes(t), func(process procfs.Process) bool {
		return !strings.HasPrefix(process.Variable(devcluster.Instance), id+"/"+role+"/")
	})
}

// AllReady says whether that many nodes are Up and healthy, each with every default role Ready and a voter of the store.
func AllReady(count int) func([]Node) bool {
	return func(nodes []Node) bool {
		if len(nodes) != count {
			return false
		}
		for _, node := range nodes {
			if node.State != "Up" || !node.Healthy || node.Store == nil || node.Store.MemberID == "" || node.Store.Learner || node.Store.Step != "" {
				return false
			}
			for _, role := range devcluster.DefaultRoles {
				if node.Role(role).State != "Ready" {
					return false
				}
			}
		}
		return true
	}
}

// AllRejoined is AllReady for nodes whose members of the store are all new ones since former: what a cluster that was begun again has of the former store may look ready, too.
func AllRejoined(former []Node) func([]Node) bool {
	return func(nodes []Node) bool {
		return AllReady(len(former))(nodes) && !slices.ContainsFunc(nodes, func(node Node) bool {
			before := ByID(former, node.ID)
			return before.Store == nil || node.Store.MemberID == before.Store.MemberID
		})
	}
}

// PeersCA is what the members of the store on some nodes know each other by.
func PeersCA(t testing.TB, c *devcluster.Cluster, numbers ...int) (all []string) {
	t.Helper()
	for _, number := range numbers {
		content, err := os.ReadFile(filepath.Join(c.NodeDirectory(number), "data", "roles", "consensus", "peer", "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(content))
	}
	return all
}
