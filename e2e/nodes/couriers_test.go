package nodes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// couriers are three nodes, each with a courier that has a connection from and to each of the other two (programs/courier).
type couriers struct {
	*devcluster.Cluster
	ids [3]string
}

// id is that of the node with a number.
func (c *couriers) id(number int) string { return c.ids[number-1] }

// others are the numbers of the other nodes.
func (c *couriers) others(number int) []int {
	return map[int][]int{1: {2, 3}, 2: {1, 3}, 3: {1, 2}}[number]
}

// connected says whether the courier of a node has one connection to and from every one of these others, and no more.
func (c *couriers) connected(status devcluster.Status, others ...int) bool {
	want := make([]string, 0, len(others))
	for _, other := range others {
		want = append(want, c.id(other)+"=1")
	}
	slices.Sort(want)
	values := status.Role("courier").Values
	return values["accepted"] == strings.Join(want, " ") && values["dialled"] == values["accepted"]
}

// withCouriers makes them.
func withCouriers(t *testing.T) *couriers {
	t.Helper()
	plugin := buildCourier(t)
	c := &couriers{Cluster: shared.OrdinaryCluster(t)}
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	fleet.Await(t, c.Cluster, 1, patience, "three nodes", fleet.AllReady(3))
	for number := 1; number <= 3; number++ {
		c.ids[number-1] = fleet.ID(t, c.Cluster, number)
		c.MustReeve(t, "plugin", "add", plugin, "--approve", "--node", c.id(number))
	}
	for number := 1; number <= 3; number++ {
		c.MustReeve(t, "node", "role", "add", c.id(number), "courier")
	}
	for number := 1; number <= 3; number++ {
		fleet.AwaitStatus(t, c.Cluster, number, "its courier is connected with the others", func(status devcluster.Status) bool {
			return status.Up("courier") && c.connected(status, c.others(number)...)
		})
	}
	return c
}

// buildCourier builds the plugin, and returns the executable.
func buildCourier(t *testing.T) string {
	t.Helper()
	directory := filepath.Join(shared.Base, "courier")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	arguments := append(append([]string{"build"}, build.Flags...), "-o", directory+"/", "./e2e/nodes/programs/courier")
	if err := build.Go(t.Context(), shared.Programs.Workspace, []string{"GOWORK=" + filepath.Join(shared.Programs.Workspace, "go.work")}, arguments...); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(directory, "courier")
}

// TestCouriers is one cluster for all that its couriers show: each of these takes it as the one before has left it.
func TestCouriers(t *testing.T) {
	c := withCouriers(t)
	if !t.Run("Workload API", func(t *testing.T) { workloadAPI(t, c) }) {
		return
	}
	if !t.Run("a role that was taken from a node", func(t *testing.T) { takenRole(t, c) }) {
		return
	}
	if !t.Run("a node that was removed", func(t *testing.T) { cutOff(t, c) }) {
		return
	}
	t.Run("a node that loses the store", func(t *testing.T) { losesTheStore(t, c) })
}
