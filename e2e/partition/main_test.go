package partition_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/partition"
	"github.com/reeveproject/reeve/e2e/internal/suite"
)

var shared = suite.Suite{Ordinary: &devcluster.User{UID: 61009, GID: 61009}}

func TestMain(m *testing.M) { shared.Main(m, "../..", "rp") }

// all are the numbers of the nodes.
var all = []int{1, 2, 3}

// soon is how long the cluster may take for what it does by itself, also on a loaded machine.
const soon = time.Minute

// three makes a cluster of three nodes, each in a network namespace of its own.
func three(t *testing.T) *devcluster.Cluster {
	t.Helper()
	partition.Require(t)
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--netns", "--detach")
	allHome(t, c)
	return c
}

// statuses are the nodes as each sees itself, by their numbers.
func statuses(t *testing.T, c *devcluster.Cluster) map[int]devcluster.Status {
	t.Helper()
	seen := make(map[int]devcluster.Status)
	for number, node := range c.Nodes(t) {
		if node.Status != nil {
			seen[number] = *node.Status
		}
	}
	return seen
}

// await waits until the nodes see themselves as they should.
func await(t *testing.T, c *devcluster.Cluster, what string, as func(map[int]devcluster.Status) bool) map[int]devcluster.Status {
	t.Helper()
	var seen map[int]devcluster.Status
	eventually.True(t, soon, what, func() (bool, string) {
		seen = statuses(t, c)
		var text strings.Builder
		for _, number := range all {
			fmt.Fprintf(&text, "\n%d: %s", number, seen[number])
		}
		return as(seen), text.String()
	})
	return seen
}

// allHome waits until every node is Home and has its roles.
func allHome(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	await(t, c, "every node Home, with its roles", func(seen map[int]devcluster.Status) bool {
		for _, number := range all {
			if status := seen[number]; !status.Up(devcluster.DefaultRoles...) {
				return false
			}
		}
		return true
	})
}

// writes has a label of a node changed, asked at a node, until that is acknowledged.
func writes(t *testing.T, c *devcluster.Cluster, asked int, node, value string) {
	t.Helper()
	eventually.True(t, soon, fmt.Sprintf("a management call is acknowledged, asked at node %d", asked), func() (bool, string) {
		result := c.StartAlone(t, "node", "label", node, "written="+value, "--dir", c.NodeDirectory(asked)).Wait(t, soon)
		return result.Code == 0, result.String()
	})
}

// transitions are the membership states that a node has entered since an event, and its last event.
func transitions(t *testing.T, c *devcluster.Cluster, number int, since uint64) (states []string, last uint64) {
	t.Helper()
	result := c.StartAlone(t, "events", "-o", "json", "--dir", c.NodeDirectory(number)).Wait(t, soon)
	var document struct {
		Events []devcluster.Event `json:"events"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil || result.Code != 0 {
		t.Fatalf("%v: %s", err, result)
	}
	last = since
	for _, event := range document.Events {
		if event.Sequence <= since {
			continue
		}
		last = event.Sequence
		if event.Type == "MembershipChanged" {
			states = append(states, event.Details["to"])
		}
	}
	return states, last
}

// marks are the last events of all nodes.
func marks(t *testing.T, c *devcluster.Cluster) map[int]uint64 {
	t.Helper()
	last := make(map[int]uint64)
	for _, number := range all {
		_, last[number] = transitions(t, c, number, 0)
	}
	return last
}

// entered fails the test if a node has not entered exactly these states since its mark.
func entered(t *testing.T, c *devcluster.Cluster, number int, marks map[int]uint64, want ...string) {
	t.Helper()
	if got, _ := transitions(t, c, number, marks[number]); !slices.Equal(got, want) {
		t.Errorf("node %d has entered the states %v; want %v", number, got, want)
	}
}

// leader is the number of the node whose member leads the store, as all of them have it.
func leader(t *testing.T, c *devcluster.Cluster) int {
	t.Helper()
	found := 0
	await(t, c, "all members of the store agree on a leader", func(seen map[int]devcluster.Status) bool {
		found = 0
		for _, number := range all {
			store, first := seen[number].Store, seen[all[0]].Store
			if store == nil || !store.Quorum || store.LeaderID == "" || store.LeaderID != first.LeaderID {
				return false
			}
			if store.MemberID == store.LeaderID {
				found = number
			}
		}
		return found != 0
	})
	return found
}
