package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// refusedCommand runs a command that has to fail, say all of want, and end with a sentence that says what to do next.
func refusedCommand(t *testing.T, c *devcluster.Cluster, want []string, arguments ...string) {
	t.Helper()
	isRefused(t, c.Reeve(t, arguments...), want)
}

// waitsInVain runs a command that waits for a role until it has said all of want, and then interrupts it: however long it takes to hear of the role, it says why it waits.
func waitsInVain(t *testing.T, c *devcluster.Cluster, want []string, arguments ...string) {
	t.Helper()
	waiting := c.Start(t, arguments...)
	eventually.True(t, patience, "it says why it waits", func() (bool, string) {
		_, said := waiting.Output()
		for _, part := range want {
			if !strings.Contains(said, part) {
				return false, said
			}
		}
		return true, ""
	})
	_ = syscall.Kill(-waiting.PID, syscall.SIGINT) // it may have ended by itself
	isRefused(t, waiting.Wait(t, patience), want)
}

// isRefused checks that a command has failed, said all of want, and ended with a sentence that says what to do next.
func isRefused(t *testing.T, result devcluster.Result, want []string) {
	t.Helper()
	if result.Code <= 0 {
		t.Errorf("it succeeds: %s", result)
		return
	}
	for _, part := range want {
		if !strings.Contains(result.Stderr, part) {
			t.Errorf("%q is not in what it says: %s", part, result)
		}
	}
	// What it was waiting for comes before, and how a role last failed after the sentence.
	_, text, _ := strings.Cut("\n"+result.Stderr, "\nreeve: ")
	text, _, _ = strings.Cut(text, "\nIt")
	text = strings.TrimSpace(text)
	if sentences := strings.Split(text, ". "); len(sentences) < 2 || !strings.HasSuffix(text, ".") {
		t.Errorf("it does not end with a sentence that says what to do: %s", result)
	}
}

// catalog and assigned are what a refused command must not change.
func catalog(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	return c.MustReeve(t, "plugin", "list", "-o", "json").Stdout
}

func assigned(s devcluster.Status) string {
	var roles []string
	for _, role := range s.Roles {
		roles = append(roles, role.Role)
	}
	return strings.Join(roles, " ")
}

// TestRefusedCommands names roles, nodes and plugins that are none.
func TestRefusedCommands(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		node := c.Up(t).Node.ID
		addLighthouse(t, c)
		before, status := catalog(t, c), c.Status(t)

		refusedCommand(t, c, []string{"ghost"}, "node", "role", "add", node, "ghost")
		refusedCommand(t, c, []string{"ghost"}, "node", "role", "remove", node, "ghost")
		refusedCommand(t, c, []string{"reeve-00000000"}, "node", "role", "add", "reeve-00000000", "hostsfile")
		refusedCommand(t, c, []string{"reeve-00000000"}, "node", "role", "remove", "reeve-00000000", "hostsfile")
		refusedCommand(t, c, []string{"ghost"}, "logs", node, "ghost")
		refusedCommand(t, c, []string{"reeve-00000000"}, "logs", "reeve-00000000", "hostsfile")
		// Without these two the cluster could not be managed any more.
		refusedCommand(t, c, []string{"curator"}, "node", "role", "remove", node, "curator")
		refusedCommand(t, c, []string{"consensus"}, "node", "role", "remove", node, "consensus")
		refusedCommand(t, c, []string{"configuration"}, "node", "role", "add", node, "hostsfile", "--config", configuration(t, c, `{"path":5}`))
		refusedCommand(t, c, []string{"configuration"}, "node", "role", "add", node, "hostsfile", "--config", configuration(t, c, `{"path"`))

		for name, plugin := range brokenPlugins(t) {
			t.Run(name, func(t *testing.T) {
				refusedCommand(t, c, []string{plugin}, "plugin", "add", "--approve", plugin)
			})
		}
		// A role of another plugin, and a ConsensusUser of another plugin.
		refusedCommand(t, c, []string{"lighthouse", "thief"},
			"plugin", "add", "--approve", buildPlugin(t, "beacon", map[string]string{"pluginName": "thief", "roleName": "lighthouse"}))
		refusedCommand(t, c, []string{"lighthouse", "thief"},
			"plugin", "add", "--approve", buildPlugin(t, "beacon", map[string]string{"pluginName": "thief", "roleName": "thief", "consensusUser": "lighthouse"}))

		if after := catalog(t, c); after != before {
			t.Errorf("the catalog was changed: %s, before %s", after, before)
		}
		after := c.AwaitUp(t, patience, withLighthouse...)
		if assigned(after) != assigned(status) {
			t.Errorf("the roles are %s, before %s", assigned(after), assigned(status))
		}
		for role, pid := range status.PIDs() {
			if after.Role(role).PID != pid {
				t.Errorf("%s has another process than before: %s", role, after)
			}
		}
		onlyThese(t, c, after)
	})
}

// brokenPlugins are files that are no plugins.
func brokenPlugins(t *testing.T) map[string]string {
	t.Helper()
	directory, err := os.MkdirTemp(suite.base, "broken-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) string {
		file := filepath.Join(directory, name)
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	truth, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer truth.Close()
	program, err := io.ReadAll(truth)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"a text":                 write("text", "I am a text.\n"),
		"nothing":                write("nothing", ""),
		"ends at once":           write("true", string(program)),
		"ends with an error":     write("false", "#!/bin/sh\necho 'the lamp is broken' >&2\nexit 3\n"),
		"prints garbage":         write("garbage", "#!/bin/sh\necho 'I am | not | a | plugin'\nexec sleep 1000\n"),
		"prints without end":     write("flood", "#!/bin/sh\nexec cat /dev/zero\n"),
		"a handshake to nowhere": write("nowhere", "#!/bin/sh\necho '1|1|unix|/nonexistent/socket|grpc'\nexec sleep 1000\n"),
		"another protocol":       write("version", "#!/bin/sh\necho '1|7|unix|/nonexistent/socket|grpc'\nexec sleep 1000\n"),
		"there is none":          filepath.Join(directory, "absent"),
		"a directory":            directory,
	}
}

// TestFailingRoles adds roles that cannot run: the command says why, and the others do not suffer.
func TestFailingRoles(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := c.Up(t)
	node := before.Node.ID
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "faulty", nil))
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "beacon", nil))

	// Refused by the cluster at once: nobody provides what it requires.
	refusedCommand(t, c, []string{"example.lens.v1"}, "node", "role", "add", node, "orphan")
	refusedCommand(t, c, []string{"crasher"}, "node", "role", "add", node, "needy")
	if role := c.Status(t).Role("orphan"); role.Role != "" {
		t.Errorf("orphan was refused and is %+v", role)
	}

	// Refused by the role itself, with everything that is wrong.
	refusedCommand(t, c, []string{"Failed", "/greeting", "/flashes"},
		"node", "role", "add", node, "beacon", "--config", configuration(t, c, `{"greeting":"","flashes":-2}`))
	beacon := c.Status(t).Role("beacon")
	if beacon.State != "Failed" || !strings.Contains(beacon.Reason, "/greeting") || !strings.Contains(beacon.Reason, "/flashes") || beacon.PID != 0 {
		t.Errorf("the beacon with a bad configuration is %+v, want it Failed with both paths and without a process", beacon)
	}
	c.MustReeve(t, "node", "role", "add", node, "beacon", "--config", configuration(t, c, `{"greeting":"hello"}`))

	for role, reason := range inOrder(map[string]string{
		"crasher": "the lamp is broken", "panicker": "the lamp has burst", "quitter": "",
	}) {
		c.MustReeve(t, "node", "role", "add", node, role, "--wait=false")
		c.Await(t, patience, role+" in Backoff with its reason", func(s devcluster.Status) bool {
			r := s.Role(role)
			return r.State == "Backoff" && r.Reason != "" && strings.Contains(r.Reason, reason) && r.Restarts > 0
		})
		// Who waits for it now is told so, too.
		waitsInVain(t, c, []string{role, reason}, "node", "role", "add", node, role)
	}
	c.MustReeve(t, "node", "role", "add", node, "needy", "--wait=false")
	c.Await(t, patience, "needy Blocked", func(s devcluster.Status) bool { return s.Role("needy").State == "Blocked" })
	waitsInVain(t, c, []string{"needy", "Blocked", "crasher"}, "node", "role", "add", node, "needy")
	if needy := c.Status(t).Role("needy"); needy.State != "Blocked" || !strings.Contains(needy.Reason, "crasher") || needy.PID != 0 {
		t.Errorf("needy is %+v, want it Blocked on the crasher", needy)
	}

	after := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	for _, role := range devcluster.DefaultRoles {
		if was, is := before.Role(role), after.Role(role); was.PID != is.PID || is.Restarts != 0 {
			t.Errorf("%s has suffered: %+v, before %+v", role, is, was)
		}
	}
	// Whatever state a role is in, it can be removed.
	for _, role := range []string{"needy", "crasher", "panicker", "quitter", "beacon"} {
		c.MustReeve(t, "node", "role", "remove", node, role)
	}
	if got := assigned(c.Status(t)); got != strings.Join(devcluster.DefaultRoles, " ") {
		t.Errorf("the roles are %s, want %v", got, devcluster.DefaultRoles)
	}
}

// TestWait adds a role without waiting for it, and one that does its work, but not as it should.
func TestWait(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.Up(t).Node.ID
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "faulty", nil))
	c.MustReeve(t, "node", "role", "add", node, "crasher", "--wait=false")
	c.Await(t, patience, "the crasher in Backoff", func(s devcluster.Status) bool { return s.Role("crasher").State == "Backoff" })
	c.MustReeve(t, "node", "role", "remove", node, "crasher", "--wait=false")
	c.Await(t, patience, "no crasher", func(s devcluster.Status) bool { return s.Role("crasher").Role == "" })

	c.MustReeve(t, "node", "role", "add", node, "fading", "--wait=false")
	c.Await(t, patience, "fading Degraded with its reason", func(s devcluster.Status) bool {
		role := s.Role("fading")
		return role.State == "Degraded" && strings.Contains(role.Reason, "the oil is low")
	})
}

// TestNoisyRole has a role that writes what would kill whoever parses it, and more than a pipe holds.
func TestNoisyRole(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := c.Up(t)
	core := c.Core(t)
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "faulty", nil))
	c.MustReeve(t, "node", "role", "add", before.Node.ID, "noisy")
	if now := c.Core(t); now.PID != core.PID || now.Start != core.Start {
		t.Errorf("reeved is %s, before %s", now, core)
	}
	for _, line := range []string{`{"@message": 5}`, "the fog horn is on"} {
		eventually.True(t, patience, "the line "+line+" in the role's log", func() (bool, string) {
			logs := c.MustReeve(t, "logs", before.Node.ID, "noisy").Stdout
			return strings.Contains(logs, line), logs
		})
	}
	if strings.Contains(c.Log(t), "the fog horn is on") {
		t.Error("what the role writes is in reeved's log, too")
	}
	othersAreWell(t, c)
	if after := c.AwaitUp(t, patience, "noisy"); after.Role("noisy").Restarts != 0 {
		t.Errorf("after the noise: %s", after)
	}
}

// TestStubbornRole removes a role that does not stop when it is asked to, with a child that knows nothing of it.
func TestStubbornRole(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		node := c.Up(t).Node.ID
		c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "faulty", nil))
		c.MustReeve(t, "node", "role", "add", node, "stubborn")
		role := c.Status(t).Role("stubborn")
		running := c.Processes(t)
		for _, process := range running {
			if process.PID == role.PID && process.Group != role.PID {
				t.Errorf("the instance does not lead a group of its own: %s", process)
			}
		}
		c.MustReeve(t, "node", "role", "remove", node, "stubborn")
		for _, process := range c.Processes(t) {
			if process.Group == role.PID {
				t.Errorf("the role was removed, and there still is %s", process)
			}
		}
		onlyThese(t, c, c.Status(t))
		if got := assigned(c.Status(t)); got != strings.Join(devcluster.DefaultRoles, " ") {
			t.Errorf("the roles are %s", got)
		}
		if len(running) != len(devcluster.DefaultRoles)+3 {
			t.Errorf("there were %d processes before, want those of reeved, the roles, the stubborn one and its child", len(running))
		}
	})
}
