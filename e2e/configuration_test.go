package e2e

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// assignment returns what the cluster has stored of a role on a node.
func assignment(t *testing.T, c *devcluster.Cluster, node, role string) string {
	t.Helper()
	return c.MustReeve(t, "describe", "role", node, role, "--show-configuration").Stdout
}

// TestConfigurationOfARole gives a role configurations that are wrong in every way, and right ones in between.
func TestConfigurationOfARole(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		node := c.Up(t).Node.ID
		c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "picky", nil))
		set := func(document string) []string {
			return []string{"node", "role", "add", node, "picky", "--config", configuration(t, c, document)}
		}
		// Refused by the schema: nothing is stored, all problems are named.
		wrong := `{"lamps":0,"token":"NO","colours":["red","blue","pink"],"horn":1}`
		paths := []string{"/lamps", "/token", "/colours/1", "/colours/2", "horn"}
		refusedCommand(t, c, paths, set(wrong)...)
		refusedCommand(t, c, paths, append(set(wrong), "--dry-run")...)
		refusedCommand(t, c, []string{"lamps"}, set(`{"token":"a"}`)...)
		if role := c.Status(t).Role("picky"); role.Role != "" {
			t.Errorf("the configuration was refused, and there is %+v", role)
		}

		c.MustReeve(t, set(`{"lamps":2,"token":"good"}`)...)
		first := c.AwaitUp(t, patience, "picky").Role("picky")
		stored := assignment(t, c, node, "picky")
		if !strings.Contains(stored, `"good"`) {
			t.Errorf("what is stored is %s", stored)
		}
		refusedCommand(t, c, paths, set(wrong)...)
		c.MustReeve(t, append(set(`{"lamps":4}`), "--dry-run")...)
		if role := c.Status(t).Role("picky"); role.PID != first.PID || role.InstanceID != first.InstanceID {
			t.Errorf("nothing was stored, and the role is %+v, before %+v", role, first)
		}
		if now := assignment(t, c, node, "picky"); configurationLine(now) != configurationLine(stored) {
			t.Errorf("a refused configuration has changed what is stored: %s, before %s", now, stored)
		}

		// A changed one restarts the instance, and is no failure; the same again is no change.
		c.MustReeve(t, set(`{"lamps":4}`)...)
		second := c.AwaitUp(t, patience, "picky").Role("picky")
		if second.InstanceID == first.InstanceID || second.PID == first.PID || second.Values["lamps"] != "4" || second.Restarts != 0 || second.LastFailure != nil {
			t.Errorf("with another configuration the role is %+v, before %+v", second, first)
		}
		c.MustReeve(t, set(`{"lamps":4}`)...)
		if again := c.AwaitUp(t, patience, "picky").Role("picky"); again.PID != second.PID {
			t.Errorf("with the same configuration the role is %+v, before %+v", again, second)
		}

		// What only the role can know: Failed with all of its problems, and the former configuration can be set back.
		refusedCommand(t, c, []string{"picky is Failed", "/lamps", "the lamps come in pairs", "/colours", "more colours"},
			set(`{"lamps":1,"colours":["red","green"]}`)...)
		role := c.Status(t).Role("picky")
		if role.State != "Failed" || role.PID != 0 || !strings.Contains(role.Reason, "/lamps") || !strings.Contains(role.Reason, "/colours") {
			t.Errorf("the role has refused its configuration and is %+v", role)
		}
		if events := c.Events(t, "RoleFailed", "picky"); len(events) != 1 || !strings.Contains(events[0].Details["cause"], "/lamps") {
			t.Errorf("the events of the refusal are %+v, want one, with the problems", events)
		}
		c.MustReeve(t, set(`{"lamps":4}`)...)
		if third := c.AwaitUp(t, patience, "picky").Role("picky"); third.Values["lamps"] != "4" {
			t.Errorf("with the former configuration the role is %+v", third)
		}
		// Who cannot start cannot be told better: the curator looks at its own configuration before it is stored.
		for document, path := range inOrder(map[string]string{`{"listen":"nowhere"}`: "/listen", `{"listen":"0.0.0.0:0","advertise":"[::]:7443"}`: "/advertise", `{"listen":"127.0.0.1:70000"}`: "/listen"}) {
			refusedCommand(t, c, []string{path}, "node", "role", "add", node, "curator", "--config", configuration(t, c, document))
		}
		before := configurationLine(assignment(t, c, node, "hostsfile"))
		for _, name := range []string{"10", "0x10"} { // which a resolver takes for addresses
			refusedCommand(t, c, []string{"/hostname"}, "node", "role", "add", node, "hostsfile", "--config", configuration(t, c, `{"hostname":"`+name+`"}`))
		}
		if now := configurationLine(assignment(t, c, node, "hostsfile")); now != before {
			t.Errorf("a refused host name is stored: %s", now)
		}
		after := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
		if restarts := after.Role("curator").Restarts; restarts != 0 {
			t.Errorf("the curator was started again %d times", restarts)
		}
		onlyThese(t, c, after)
	})
}

// configurationLine is the line of a description that has the configuration.
func configurationLine(description string) string {
	for line := range strings.Lines(description) {
		if strings.HasPrefix(line, "Configuration") {
			return line
		}
	}
	return ""
}
