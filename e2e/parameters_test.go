package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestParametersRefused starts reeved with parameters that are none: it names every problem at once.
func TestParametersRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range inOrder(map[string]struct {
		// content of the file; nil: there is none.
		content *string
		want    []string
	}{
		"missing": {nil, []string{"parameters.yaml"}},
		"empty":   {new(string), []string{"parameters.yaml", "empty"}},
		"not YAML": {pointer("version: [\n"), []string{
			"parameters.yaml",
		}},
		"unknown field": {pointer("version: reeve.node.v1\nlighthouses: 3\n"), []string{"lighthouses"}},
		"several unknown fields": {pointer("version: reeve.node.v1\nlighthouses: 3\nvolume: {plain: {}, colour: blue}\n"), []string{
			"lighthouses", "colour",
		}},
		"several problems": {pointer(`
version: reeve.node.v2
directories: {system: var/system, data: /d, run: /a-run-directory-that-is-too-long-for-the-path-of-a-socket}
network: {addresses: [somewhere], api_listen: nowhere}
volume: {plain: {}}
plugins: [{path: bin/consensus}, {path: bin/consensus}]
bootstrap: {owner_public_key: c2hvcnQ=, roles: [{role: Consensus}]}
log: {level: loud}
`), []string{
			"version", "directories.system", "directories.run", "network.addresses[0]", "network.api_listen", "plugins[0].path", "plugins[1].path",
			"bootstrap.owner_public_key", "bootstrap.roles[0].role", "log.level",
		}},
		"nothing that is needed": {pointer("{}"), []string{"version", "directories", "volume", "cluster"}},
	}) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(c.Home, "parameters.yaml")
			_ = os.Remove(file)
			if test.content != nil {
				if err := os.WriteFile(file, []byte(*test.content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			result := c.Run(t, suite.programs.Reeved(), "--parameters", file)
			if result.Code <= 0 {
				t.Fatalf("reeved takes it: %s", result)
			}
			for _, want := range test.want {
				if !strings.Contains(result.Stderr, want) {
					t.Errorf("%q is not named: %s", want, result)
				}
			}
		})
	}
	t.Run("not given", func(t *testing.T) {
		if result := c.Run(t, suite.programs.Reeved()); result.Code <= 0 || !strings.Contains(result.Stderr, "--parameters") {
			t.Errorf("want a refusal that names --parameters: %s", result)
		}
	})
}

func pointer(text string) *string { return &text }

// TestGenesisRefused makes a cluster with plugins that make none.
func TestGenesisRefused(t *testing.T) {
	t.Parallel()
	notAPlugin := filepath.Join(suite.base, "not-a-plugin")
	if err := os.WriteFile(notAPlugin, []byte("I am a text.\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range inOrder(map[string]struct {
		edit func(*nodev1.Parameters)
		want []string
	}{
		"no such plugin": {func(p *nodev1.Parameters) {
			p.Plugins[0].Path = "/nonexistent/plugin"
		}, []string{"/nonexistent/plugin"}},
		"not a plugin": {func(p *nodev1.Parameters) {
			p.Plugins[0].Path = notAPlugin
		}, []string{notAPlugin}},
		"unknown role": {func(p *nodev1.Parameters) {
			p.GetBootstrap().Roles[2].Role = "ghost"
		}, []string{"ghost"}},
		"no store": {func(p *nodev1.Parameters) {
			p.GetBootstrap().Roles = p.GetBootstrap().Roles[1:]
		}, []string{"reeve.consensus.v1"}},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.WriteParameters(t, test.edit)
			result := c.Reeve(t, "dev", "up", "--detach")
			if result.Code <= 0 {
				t.Fatalf("dev up succeeds: %s", result)
			}
			for _, want := range test.want {
				if !strings.Contains(result.Stderr, want) {
					t.Errorf("%q is not named: %s", want, result)
				}
			}
			c.NoProcesses(t)
		})
	}
}

// TestSecondDaemon starts a second reeved on the directory of one that runs.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		before := c.Up(t)
		result := c.Run(t, suite.programs.Reeved(), "--parameters", c.Path("reeved.yaml"))
		if result.Code <= 0 || !strings.Contains(result.Stderr, "another reeved") || !strings.Contains(result.Stderr, c.Path("system", "lock")) {
			t.Errorf("want a refusal that says who has the directory: %s", result)
		}
		if reap := c.Run(t, suite.programs.Reeved(), "reap", "--dir", c.Directory); reap.Code <= 0 || !strings.Contains(reap.Stderr, "another reeved") {
			t.Errorf("what a living core runs is not to be reaped: %s", reap)
		}
		// To bring up what is up is no error, and starts nothing.
		c.MustReeve(t, "dev", "up", "--detach")
		after := c.Status(t)
		for role, pid := range before.PIDs() {
			if after.Role(role).PID != pid {
				t.Errorf("%s has process %d after %d", role, after.Role(role).PID, pid)
			}
		}
		onlyThese(t, c, after)
	})
}

// TestAPIPortInUse wants the node's own API where somebody else listens: without it the node does not start, and says why.
func TestAPIPortInUse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	address, release := listen(t)
	c.WriteParameters(t, func(p *nodev1.Parameters) { p.Network.ApiListen = address })
	if result := c.Reeve(t, "dev", "up", "--detach"); result.Code <= 0 || !strings.Contains(result.Stderr, address) {
		t.Errorf("want a refusal that names %s: %s", address, result)
	}
	c.NoProcesses(t)
	release()
	if status := c.Up(t); status.Node.APIAddress != address {
		t.Errorf("the node's API is at %q, want %s", status.Node.APIAddress, address)
	}
}

// TestPortInUse makes the curator listen where somebody else does: it says so, and goes on when the port is free.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	address, release := listen(t)
	c.WriteParameters(t, func(p *nodev1.Parameters) {
		p.GetBootstrap().Roles[1].Configuration = `{"listen":` + quote(address) + `}`
	})
	up := c.Start(t, "dev", "up", "--detach")
	c.Await(t, patience, "the curator names the address "+address, func(s devcluster.Status) bool {
		role := s.Role("curator")
		return role.State != "Ready" && strings.Contains(role.Reason, address)
	})
	status := c.Status(t)
	if status.Role("consensus").State != "Ready" {
		t.Errorf("consensus suffers from the curator's port: %s", status)
	}
	release()
	if result := up.Wait(t, 2*patience); result.Code != 0 {
		t.Fatalf("the port is free, and the node does not come up: %s", result)
	}
	c.Await(t, patience, "the cluster API at "+address+" and the curator Ready", func(s devcluster.Status) bool {
		return s.Role("curator").State == "Ready" && len(s.Cluster.Curators) == 1 && s.Cluster.Curators[0] == address
	})
}
