package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// TestBlockedByItsMachine has a role that its machine keeps from its work: it runs and says what is missing, goes on by itself when that is there, and is Blocked again when it is not.
func TestBlockedByItsMachine(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		node := c.Up(t).Node.ID
		c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "faulty", nil))
		refusedCommand(t, c, []string{"waiting is Blocked: the machine has no lamp"}, "node", "role", "add", node, "waiting")
		refusedCommand(t, c, []string{"behind", "Blocked", "role waiting is Blocked"}, "node", "role", "add", node, "behind")
		is := func(s devcluster.Status, state string) bool {
			role := s.Role("waiting")
			return role.State == state && role.PID != 0 && strings.Contains(role.Reason, "no lamp") == (state == "Blocked")
		}
		before := c.Await(t, patience, "the role Blocked, with a process", func(s devcluster.Status) bool { return is(s, "Blocked") })
		c.MustReeve(t, "wait", node, "--for", "role/waiting=Blocked")
		// The next core goes on with it as it is.
		c.MustReeve(t, "dev", "restart")
		c.Await(t, patience, "the same process Blocked under another core", func(s devcluster.Status) bool {
			return is(s, "Blocked") && s.Role("waiting").PID == before.Role("waiting").PID
		})
		lamp := c.Path("data", "roles", "waiting", "lamp")
		if err := os.WriteFile(lamp, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		c.MustReeve(t, "wait", node, "--for", "role/waiting=Ready", "--for", "role/behind=Ready")
		if err := os.Remove(lamp); err != nil {
			t.Fatal(err)
		}
		after := c.Await(t, patience, "it Blocked again, and the one behind it Ready", func(s devcluster.Status) bool {
			return is(s, "Blocked") && s.Role("behind").State == "Ready"
		})
		if role := after.Role("waiting"); role.PID != before.Role("waiting").PID || role.Restarts != 0 {
			t.Errorf("it was started again: %+v, before %+v", role, before.Role("waiting"))
		}
		for _, role := range []string{"behind", "waiting"} {
			c.MustReeve(t, "node", "role", "remove", node, role)
		}
	})
}

// TestTimeToStop has a role that says it takes long to stop: everybody who stops it waits for it.
func TestTimeToStop(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.Up(t).Node.ID
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "faulty", nil))
	c.MustReeve(t, "node", "role", "add", node, "tidy")
	if shown := c.MustReeve(t, "node", "role", "show", node, "tidy", "-o", "json").Stdout; !strings.Contains(shown, `"stop_grace_seconds": 120`) {
		t.Errorf("what it takes is not shown:\n%s", shown)
	}
	tidied := c.Path("data", "roles", "tidy", "tidied")
	for why, stop := range map[string]func(){
		"restart": func() { c.MustReeve(t, "node", "role", "restart", node, "tidy") },
		"node":    func() { c.Down(t) },
	} {
		if err := os.RemoveAll(tidied); err != nil {
			t.Fatal(err)
		}
		c.MustReeve(t, "dev", "up", "--detach")
		c.AwaitUp(t, patience, "tidy")
		stop()
		if content, err := os.ReadFile(tidied); err != nil || string(content) != why {
			t.Errorf("stopped by %s it was not left to its end: %q, %v", why, content, err)
		}
	}
}

// TestRootWithoutCapabilities runs a node as root in what a container is left: the node comes up, and names what it lacks.
func TestRootWithoutCapabilities(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("needs root: only root has capabilities to lose")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv, of the package util-linux")
	}
	c := newCluster(t, setpriv, "--bounding-set=-sys_admin,-sys_ptrace", "--")
	c.Up(t)
	lacking := []string{"CAP_SYS_PTRACE", "CAP_SYS_ADMIN"}
	status := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	if !slices.Equal(status.Node.LackingCapabilities, lacking) {
		t.Errorf("the node says that it lacks %q, want %q", status.Node.LackingCapabilities, lacking)
	}
	for _, command := range []string{"status", "doctor"} {
		shown := c.MustReeve(t, command).Stdout
		for _, name := range lacking {
			if !strings.Contains(shown, name) {
				t.Errorf("%s does not name %s:\n%s", command, name, shown)
			}
		}
	}
	// A role that ends is started again, and the next core goes on with the others.
	c.Kill(t, status.Role("hostsfile").PID)
	c.Await(t, patience, "hostsfile started again", func(s devcluster.Status) bool {
		return s.Up(devcluster.DefaultRoles...) && s.Role("hostsfile").PID != status.Role("hostsfile").PID
	})
	c.MustReeve(t, "dev", "restart")
	if after := c.AwaitUp(t, patience, devcluster.DefaultRoles...); after.Role("consensus").PID != status.Role("consensus").PID {
		t.Errorf("the next core has started consensus again: process %d, before %d", after.Role("consensus").PID, status.Role("consensus").PID)
	}
}
