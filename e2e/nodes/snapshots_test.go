package nodes_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// sealSnapshots makes a recovery key, to which snapshots are sealed from then on, and returns its file.
func sealSnapshots(t *testing.T, c *devcluster.Cluster) (key string) {
	t.Helper()
	key = filepath.Join(c.Home, "recovery.key")
	var made struct {
		Recipient string `json:"recipient"`
	}
	if err := json.Unmarshal([]byte(c.MustReeve(t, "recovery-key", "new", key, "-o", "json").Stdout), &made); err != nil {
		t.Fatal(err)
	}
	c.MustReeve(t, "policy", "set", "recovery-recipient="+made.Recipient)
	return key
}

// TestScheduledSnapshots has three nodes take a snapshot by schedule. One that does not lead takes it, within its sandbox, and restores it; an operator fetches and opens it. Then the key of the
// cluster's records in it opens nothing without the recovery key.
func TestScheduledSnapshots(t *testing.T) {
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	nodes := fleet.Await(t, c, 1, patience, "three nodes with their roles", fleet.AllReady(3))
	for _, node := range nodes {
		if node.ID != fleet.ID(t, c, 1) {
			c.MustReeve(t, "node", "role", "add", node.ID, "curator")
			c.MustReeve(t, "node", "role", "add", node.ID, "consensus")
		}
	}
	fleet.Await(t, c, 1, patience, "three members that vote", func(nodes []fleet.Node) bool {
		voters := 0
		for _, node := range nodes {
			if node.Store != nil && node.Store.MemberID != "" && !node.Store.Learner && node.Store.Step == "" && node.Role("curator").State == "Ready" {
				voters++
			}
		}
		return voters == 3
	})
	key := sealSnapshots(t, c)
	c.MustReeve(t, "policy", "set", "snapshots=interval=10m,keep=3")
	var listed struct {
		Problem   string `json:"problem"`
		Snapshots []struct {
			Name   string `json:"name"`
			NodeID string `json:"node_id"`
			Keys   int64  `json:"rehearsed_keys"`
		} `json:"snapshots"`
	}
	eventually.True(t, patience, "the first snapshot is good", func() (bool, string) {
		result := c.Reeve(t, "store", "snapshot", "list", "-o", "json")
		return result.Code == 0 && json.Unmarshal([]byte(result.Stdout), &listed) == nil && len(listed.Snapshots) > 0, result.String()
	})
	one := listed.Snapshots[0]
	if listed.Problem != "" || len(listed.Snapshots) != 1 || one.Keys == 0 {
		t.Errorf("%+v", listed)
	}
	if asked := c.MustReeve(t, "audit", "--limit", "20").Stdout; !strings.Contains(asked, "AskSnapshot") {
		t.Errorf("the audit log does not say that it was asked for: %s", asked)
	}
	file := filepath.Join(c.Home, "fetched")
	result := c.MustReeve(t, "store", "snapshot", "get", one.Name, file)
	if !strings.Contains(result.Stdout, "came out of it when it was restored") || !strings.Contains(result.Stdout, one.NodeID) {
		t.Error(result)
	}
	if result := c.MustReeve(t, "store", "snapshot", "inspect", file, "--recovery-key", key); !strings.Contains(result.Stdout, "the database in it are complete") {
		t.Error(result)
	}
	if left, err := filepath.Glob(filepath.Join(c.NodeDirectory(1), "data", "roles", "consensus", "rehearsal*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	eventually.True(t, patience, "the status of the node says how old it is", func() (bool, string) {
		result := c.MustReeve(t, "status", one.NodeID)
		return strings.Contains(result.Stdout, "the newest good one was taken "), result.String()
	})
	if metrics := c.MustReeve(t, "node", "metrics", one.NodeID).Stdout; !strings.Contains(metrics, "curator_snapshot_good_seconds") {
		t.Error("the metrics of the node do not have the age of the snapshot")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	c.Down(t)
}
