package nodes_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/suite"
)

var shared suite.Suite

func TestMain(m *testing.M) { shared.Main(m, "../..", "rn") }

// patience only turns a hang into a failure.
const patience = 2 * time.Minute

// node is one of those that `reeve node list -o json` shows.
type node struct {
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

func (n node) role(name string) devcluster.Role {
	for _, role := range n.Roles {
		if role.Role == name {
			return role
		}
	}
	return devcluster.Role{}
}

func (n node) has(role string) bool {
	return slices.ContainsFunc(n.Assigned, func(assigned struct {
		Role    string `json:"role"`
		Leaving bool   `json:"leaving"`
	}) bool {
		return assigned.Role == role
	})
}

// String is the node for people who look at a failed test.
func (n node) String() string {
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

// list returns the nodes of the cluster as the command line shows them, asked at one node's directory.
func list(t *testing.T, c *devcluster.Cluster, directory string) ([]node, string) {
	t.Helper()
	result := c.StartAlone(t, "node", "list", "-o", "json", "--dir", directory).Wait(t, patience)
	if result.Code != 0 {
		return nil, result.String()
	}
	var document struct {
		Nodes []node `json:"nodes"`
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

// directoryOf is the directory of the node with a number.
func directoryOf(c *devcluster.Cluster, number int) string {
	if number == 1 {
		return c.Directory
	}
	return filepath.Join(c.State(), "nodes", strconv.Itoa(number))
}

// idOf is the ID of the node with a number.
func idOf(t *testing.T, c *devcluster.Cluster, number int) string {
	t.Helper()
	result := c.StartAlone(t, "status", "-o", "json", "--dir", directoryOf(c, number)).Wait(t, patience)
	status, err := devcluster.ParseStatus(result.Stdout)
	if err != nil || result.Code != 0 {
		t.Fatalf("%v: %s", err, result)
	}
	return status.Node.ID
}

// await waits until the nodes are as they should be, asked at one node.
func await(t *testing.T, c *devcluster.Cluster, asked int, timeout time.Duration, what string, as func([]node) bool) []node {
	t.Helper()
	var found []node
	eventually.True(t, timeout, what, func() (bool, string) {
		nodes, seen := list(t, c, directoryOf(c, asked))
		found = nodes
		return nodes != nil && as(nodes), seen
	})
	return found
}

// by returns the node with an ID.
func by(nodes []node, id string) node {
	for _, node := range nodes {
		if node.ID == id {
			return node
		}
	}
	return node{}
}

// killNode kills every process of one node, as if its machine had lost its power.
func killNode(t *testing.T, c *devcluster.Cluster, number int, id string) {
	t.Helper()
	for processes := processesOf(t, c, number, id); len(processes) > 0; processes = processesOf(t, c, number, id) {
		for _, process := range processes {
			c.KillProcess(t, process)
		}
	}
}

// processesOf are the processes of one node, the core first.
func processesOf(t *testing.T, c *devcluster.Cluster, number int, id string) (found []procfs.Process) {
	t.Helper()
	parameters := filepath.Join(directoryOf(c, number), "reeved.yaml")
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

// instanceOf are the processes of the instance of a role of a node.
func instanceOf(t *testing.T, c *devcluster.Cluster, id, role string) []procfs.Process {
	t.Helper()
	return slices.DeleteFunc(c.Processes(t), func(process procfs.Process) bool {
		return !strings.HasPrefix(process.Variable(devcluster.Instance), id+"/"+role+"/")
	})
}
