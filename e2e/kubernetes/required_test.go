package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRequired: a node is given what a role requires in one step with it, and keeps what it had.
func TestRequired(t *testing.T) {
	plugin, err := shared.Programs.Kubernetes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := shared.Cluster(t)
	c.Up(t)
	c.MustReeve(t, "plugin", "add", plugin, "--approve", "--without", "kubernetes-worker:privileged")
	ports := freePorts(t, 3)
	file := filepath.Join(c.Home, "controller.json")
	configuration := fmt.Sprintf(`{"port": %d, "controllerManagerPort": %d, "schedulerPort": %d}`, ports[0], ports[1], ports[2])
	if err := os.WriteFile(file, []byte(configuration), 0o644); err != nil {
		t.Fatal(err)
	}
	before := c.MustReeve(t, "node", "role", "list", "self", "-o", "json").Stdout
	if refused := c.Reeve(t, "node", "role", "add", "self", controller, "--config", file); refused.Code != 4 || !strings.Contains(refused.Stderr, "--with-required") {
		t.Errorf("without what it requires: %s", refused)
	}
	c.MustReeve(t, "node", "role", "add", "self", controller, "--config", file, "--with-required", "--dry-run")
	for _, role := range []string{pki, controller} {
		if strings.Contains(before, role) || strings.Contains(c.MustReeve(t, "node", "role", "list", "self", "-o", "json").Stdout, role) {
			t.Errorf("the node has %s before it was given it", role)
		}
	}
	added := c.MustReeve(t, "node", "role", "add", "self", controller, "--config", file, "--with-required", "--wait=started", "--timeout="+soon.String(), "-o", "json")
	if !strings.Contains(added.Stdout, pki) {
		t.Errorf("it does not say what else the node was given: %s", added)
	}
	c.AwaitUp(t, soon, pki, controller, "curator", "consensus")
	if shown := c.MustReeve(t, "describe", "role", "self", controller, "--show-configuration", "-o", "json"); !strings.Contains(shown.Stdout, fmt.Sprint(ports[0])) {
		t.Errorf("the configuration is not that of the command: %s", shown)
	}
}
