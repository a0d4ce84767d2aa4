package e2e

import (
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/build"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestNoRoleNameCompiledIn forms a cluster whose store is another plugin's, with a role of another name.
func TestNoRoleNameCompiledIn(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(suite.base, "ledger")
	arguments := append([]string{"build"}, build.Flags...)
	arguments = append(arguments, "-o", ledger, "-ldflags", "-X main.pluginName=ledger -X main.roleName=store", ".")
	workspace := suite.programs.Workspace
	if err := build.Go(t.Context(), filepath.Join(workspace, "plugins", "consensus"), []string{"GOWORK=" + filepath.Join(workspace, "go.work")}, arguments...); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.WriteParameters(t, func(p *nodev1.Parameters) {
		// No executable that the genesis catalog does not know makes a cluster with it: without one the plugins are asked what they are.
		p.Genesis = ""
		p.Plugins[0].Path = ledger
		p.GetBootstrap().Roles[0].Role = "store"
	})
	c.Up(t)
	roles := []string{"store", "curator", "hostsfile"}
	first := c.AwaitUp(t, patience, roles...)
	if role := first.Role("consensus"); role.Role != "" {
		t.Errorf("there is a role consensus: %s", first)
	}
	addLighthouse(t, c)
	mustCount(t, "POST", c.Status(t).Role("lighthouse"), 1)
	c.Down(t)
	c.Up(t)
	second := c.AwaitUp(t, patience, append(roles, "lighthouse")...)
	if first.Cluster.ID != second.Cluster.ID {
		t.Errorf("started again it is cluster %s, want %s", second.Cluster.ID, first.Cluster.ID)
	}
	mustCount(t, "GET", second.Role("lighthouse"), 1)
}
