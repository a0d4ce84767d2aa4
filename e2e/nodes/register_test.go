package nodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// TestApproval takes a machine into a cluster as an operator does: a ticket in a file, `reeve init --join`, a look at its key, `reeve node approve`.
func TestApproval(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--detach")

	file := filepath.Join(c.Home, "ticket")
	made := c.MustReeve(t, "ticket", "create", "--role", "hostsfile", "--label", "rack=7", "--output-file", file)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if secret := strings.TrimSpace(string(content)); strings.Contains(made.Stdout+made.Stderr, secret) || !strings.HasPrefix(secret, "reeve1.") {
		t.Errorf("the file holds %d bytes; %s", len(content), made)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the ticket's file: %v, %v", info.Mode(), err)
	}

	state, run := filepath.Join(c.Directory, "nodes", "2"), filepath.Join(c.Home, "r2")
	parameters := filepath.Join(state, "reeved.yaml")
	if result := c.StartAlone(t, "init", "--join", file, "--file", parameters, "--state", state, "--run", run, "--address", "127.0.0.2", "--api-listen", "127.0.0.2:0",
		"--role", "hostsfile", "--hosts-file", filepath.Join(state, "hosts")).Wait(t, patience); result.Code != 0 {
		t.Fatal(result)
	}
	core := fleet.StartCore(t, c, parameters)
	socket := filepath.Join(run, "node.sock")
	var id string
	eventually.True(t, patience, "the machine waits for approval", func() (bool, string) {
		result := c.StartAlone(t, "status", "-o", "json", "--socket", socket).Wait(t, patience)
		status, err := devcluster.ParseStatus(result.Stdout)
		id = status.Node.ID
		return err == nil && status.Membership.State == "Foreign" && strings.Contains(status.Membership.Reason, "reeve node approve "+id), result.String()
	})
	waiting := fleet.Await(t, c, 1, patience, "the cluster lists it", func(nodes []fleet.Node) bool { return fleet.ByID(nodes, id).State == "New" })
	if node := fleet.ByID(waiting, id); node.Labels["rack"] != "7" || len(node.Assigned) != 0 {
		t.Errorf("it has roles before it is approved, or not the labels of its ticket: %v, %v", node, node.Labels)
	}

	// Killed while it waits, it goes on waiting: neither another key nor another use of the ticket.
	core.Signal(t, 9)
	<-core.Done()
	core = fleet.StartCore(t, c, parameters)
	c.MustReeve(t, "node", "approve", id, "--yes")
	fleet.Await(t, c, 1, patience, "the node is Up, with the role that it asked for", func(nodes []fleet.Node) bool {
		node := fleet.ByID(nodes, id)
		return len(nodes) == 2 && node.State == "Up" && node.Healthy && node.Has("hostsfile")
	})

	// The ticket is spent.
	other := filepath.Join(c.Directory, "nodes", "3")
	if result := c.StartAlone(t, "init", "--join", file, "--file", filepath.Join(other, "reeved.yaml"), "--state", other, "--run", filepath.Join(c.Home, "r3"), "--address", "127.0.0.3",
		"--api-listen", "127.0.0.3:0").Wait(t, patience); result.Code != 0 {
		t.Fatal(result)
	}
	late := fleet.StartCore(t, c, filepath.Join(other, "reeved.yaml"))
	eventually.True(t, patience, "the second machine is refused", func() (bool, string) {
		result := c.StartAlone(t, "status", "-o", "json", "--socket", filepath.Join(c.Home, "r3", "node.sock")).Wait(t, patience)
		status, err := devcluster.ParseStatus(result.Stdout)
		return err == nil && strings.Contains(status.Membership.Reason, "ticket"), result.String()
	})
	if nodes, seen := fleet.List(t, c, 1); len(nodes) != 2 {
		t.Errorf("a spent ticket makes a node: %s", seen)
	}
	for _, running := range []*devcluster.Running{late, core} {
		running.Signal(t, 15)
		if result := running.Wait(t, patience); result.Code != 0 {
			t.Error(result)
		}
	}
}
