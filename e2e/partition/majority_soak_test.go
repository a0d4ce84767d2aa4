//go:build soak

package partition_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/partition"
	"github.com/reeveproject/reeve/e2e/internal/roleplugin"
)

const (
	// small is a crash budget that a role which ends again and again has used up in a few seconds.
	small = "supervision: {crash_budget: {failures: 2, window: 60s}}\n"
	// long is for how long there is no majority: more than the window of that budget.
	long = 90 * time.Second
)

// TestMajorityAwayForLong cuts all nodes off from each other for longer than the crash budget of their roles allows them to fail. When that is over everything is Ready, with no command.
func TestMajorityAwayForLong(t *testing.T) {
	t.Parallel()
	c := three(t)
	c.Down(t)
	for _, number := range all {
		file, err := os.OpenFile(filepath.Join(c.NodeDirectory(number), "reeved.yaml"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(small); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.MustReeve(t, "dev", "up", "--detach")
	allHome(t, c)
	plugin, err := roleplugin.Build(t.Context(), shared.Programs.Workspace, shared.Base, "needy", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range statuses(t, c) {
		c.MustReeve(t, "plugin", "add", "--approve", plugin, "--node", status.Node.ID)
	}
	for _, status := range statuses(t, c) {
		c.MustReeve(t, "node", "role", "add", status.Node.ID, "needy")
	}
	network, began := partition.New(t, c), time.Now()
	for _, number := range all {
		network.Isolate(t, number)
	}
	var seen map[int]devcluster.Status
	failing := make(map[int]bool)
	eventually.True(t, long+soon, "the majority is away for long, and the role that cannot do without it has ended everywhere", func() (bool, string) {
		seen = statuses(t, c)
		for number, status := range seen {
			failing[number] = failing[number] || status.Role("needy").State != "Ready"
		}
		return time.Since(began) > long && failing[1] && failing[2] && failing[3], ""
	})
	for number, status := range seen {
		if role := status.Role("needy"); role.State == "Failed" {
			t.Errorf("node %d: the store has no majority, and a role that uses it was given up for that: %+v", number, role)
		}
	}
	network.Heal(t)
	await(t, c, "every node Home, with all of its roles", func(seen map[int]devcluster.Status) bool {
		for _, number := range all {
			if status := seen[number]; !status.Up(append([]string{"needy"}, devcluster.DefaultRoles...)...) {
				return false
			}
		}
		return true
	})
}
