//go:build soak

package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// soon is how soon a role that does not answer is found.
const soon = 6 * time.Second

// TestStoppedCore stops the core for longer than its roles may go without an answer: none of them pays for it. The cluster, meanwhile, sees within the
// lease of its heartbeat that nobody looks after the node.
func TestStoppedCore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.WriteParameters(t, func(p *nodev1.Parameters) { setLiveness(p, soon) })
	c.Up(t)
	addLighthouse(t, c)
	before := c.AwaitUp(t, patience, withLighthouse...)
	// A curator that was killed and is Ready again knows the node's health from its lease.
	c.Kill(t, before.Role("curator").PID)
	before = c.Await(t, patience, "another curator", func(s devcluster.Status) bool {
		return s.Up(withLighthouse...) && s.Role("curator").PID != before.Role("curator").PID
	})
	// From afar, since the local way to the cluster is through the core.
	access := []string{"--address", before.Cluster.Curators[0], "--ca", caFile(t, c), "--owner-key", c.Path("owner.key")}
	eventually.True(t, patience, "with another curator the node is healthy", func() (bool, string) {
		return healthy(t, c, access), ""
	})
	core := c.Core(t)
	c.Signal(t, core.PID, unix.SIGSTOP)
	eventually.True(t, patience, "the cluster says that the node is not healthy", func() (bool, string) {
		return !healthy(t, c, access), ""
	})
	c.Signal(t, core.PID, unix.SIGCONT)
	eventually.True(t, patience, "the cluster says that the node is healthy again", func() (bool, string) {
		return healthy(t, c, access), ""
	})
	after := c.AwaitUp(t, patience, withLighthouse...)
	for role, pid := range before.PIDs() {
		if after.Role(role).PID != pid {
			t.Errorf("the core was stopped, and %s has process %d after %d", role, after.Role(role).PID, pid)
		}
	}
}

// healthy says whether the cluster takes its only node for one that lives.
func healthy(t *testing.T, c *devcluster.Cluster, access []string) bool {
	t.Helper()
	result := c.Run(t, suite.programs.Reeve(), append([]string{"node", "list", "-o", "json"}, access...)...)
	var list struct {
		Nodes []struct {
			Healthy bool `json:"healthy"`
		} `json:"nodes"`
	}
	if result.Code != 0 || json.Unmarshal([]byte(result.Stdout), &list) != nil || len(list.Nodes) != 1 {
		t.Fatal(result)
	}
	return list.Nodes[0].Healthy
}
