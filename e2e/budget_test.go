package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// tightBudget is how often a role may fail here.
const tightBudget = 2

func tightParameters(p *nodev1.Parameters) {
	failures := uint32(tightBudget)
	p.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: &failures}}
}

// ends are ways in which a role ends by itself, and what is to be seen of them.
var ends = []struct {
	configuration string
	code          int // -1: none
	signal        string
	// line is what the role last wrote, or said with its end.
	line string
}{
	{`{"end":"exit"}`, 3, "", "the glass breaks"},
	{`{"end":"signal"}`, -1, "SIGSEGV", "the glass melts"},
	{`{"end":"panic"}`, 1, "", "the glass bursts"},
}

// TestCrashBudget gives a role that ends by itself to a node: past its budget it is Failed, everybody can see why, and nothing brings it back but
// somebody who deals with it.
func TestCrashBudget(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.WriteParameters(t, tightParameters)
		before := c.Up(t)
		node := before.Node.ID
		c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "fragile", nil))
		for _, end := range ends {
			config := configuration(t, c, end.configuration)
			// The command says the cause. It would say something else if it had waited until its time was over.
			refusedCommand(t, c, []string{"fragile is Failed", "node role restart"}, "node", "role", "add", node, "fragile", "--config", config, "--timeout", "90s")
			role := c.Status(t).Role("fragile")
			failure := role.LastFailure
			if role.State != "Failed" || role.PID != 0 || failure == nil {
				t.Fatalf("%s: the role is %+v, want it Failed, without a process, with its last failure", end.configuration, role)
			}
			if code := failure.ExitCode; (code == nil) != (end.code < 0) || code != nil && *code != end.code || failure.Signal != end.signal {
				t.Errorf("%s: it is said to have ended by %+v, want code %d, signal %q", end.configuration, failure, end.code, end.signal)
			}
			if failure.Failures != tightBudget+1 || failure.Budget != tightBudget {
				t.Errorf("%s: %d failures of %d, want %d of %d", end.configuration, failure.Failures, failure.Budget, tightBudget+1, tightBudget)
			}
			if lines := strings.Join(failure.Lines, "\n"); !strings.Contains(lines, end.line) {
				t.Errorf("%s: the last lines are %q, want %q among them", end.configuration, lines, end.line)
			}
			shownToPeople(t, c, node, end.line)
			failed := c.Events(t, "RoleFailed", "fragile")
			if len(failed) == 0 {
				t.Fatalf("%s: there is no event RoleFailed", end.configuration)
			}
			event := failed[len(failed)-1]
			if event.Severity != "error" || event.InstanceID != failure.InstanceID || event.Details["signal"] != end.signal || event.Details["cause"] == "" ||
				event.Details["failures"] != "3" || event.Details["budget"] != "2" {
				t.Errorf("%s: the event is %+v", end.configuration, event)
			}
			// Every one of the failures has an event, too.
			if crashed := c.Events(t, "RoleCrashed", "fragile"); len(crashed) < tightBudget+1 {
				t.Errorf("%s: there are only the crashes %+v", end.configuration, crashed)
			}
		}
		staysFailed(t, c)
		comesBack(t, c, node)
		othersAreWell(t, c)
	})
}

// shownToPeople looks for the end of a role in the tables.
func shownToPeople(t *testing.T, c *devcluster.Cluster, node, line string) {
	t.Helper()
	for _, command := range [][]string{{"status"}, {"describe", "role", node, "fragile"}} {
		if result := c.MustReeve(t, command...); !strings.Contains(result.Stdout, "Failed") || !strings.Contains(result.Stdout, line) {
			t.Errorf("it does not say that the role is Failed and that it wrote %q: %s", line, result)
		}
	}
}

// staysFailed restarts the core in every way: a role that was given up stays so, with its reasons.
func staysFailed(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	before := c.Status(t).Role("fragile")
	for name, restart := range inOrder(map[string]func(){
		"killed and started":  func() { c.Kill(t, c.Core(t).PID) },
		"stopped and started": func() { c.Down(t) },
		"everything killed":   func() { c.KillAll(t) },
	}) {
		restart()
		c.Up(t)
		role := c.Await(t, patience, name+": the role is Failed", func(s devcluster.Status) bool {
			return s.Up(devcluster.DefaultRoles...) && s.Role("fragile").State == "Failed"
		}).Role("fragile")
		was, _ := json.Marshal(before.LastFailure)
		is, _ := json.Marshal(role.LastFailure)
		if string(is) != string(was) || role.PID != 0 || role.Reason != before.Reason {
			t.Errorf("%s: the role is %+v with failure %s, before it was %+v with %s", name, role, is, before, was)
		}
	}
	// It was not tried in between: an instance that was, would have another number.
	c.MustReeve(t, "node", "role", "restart", c.Status(t).Node.ID, "fragile", "--wait=none")
	role := c.Await(t, patience, "the role Failed again", func(s devcluster.Status) bool {
		role := s.Role("fragile")
		return role.State == "Failed" && role.LastFailure.InstanceID != before.LastFailure.InstanceID
	}).Role("fragile")
	if role.LastFailure.Failures != tightBudget+1 {
		t.Errorf("a restart has to give the whole budget back: after it the failures are %+v", role.LastFailure)
	}
}

// comesBack takes the ways out.
func comesBack(t *testing.T, c *devcluster.Cluster, node string) {
	t.Helper()
	ready := func(what string) {
		t.Helper()
		if role := c.AwaitUp(t, patience, "fragile").Role("fragile"); role.Values["end"] != "never" {
			t.Errorf("%s: the role is %+v", what, role)
		}
	}
	fail := func() {
		t.Helper()
		refusedCommand(t, c, []string{"fragile is Failed"}, "node", "role", "add", node, "fragile", "--config", configuration(t, c, `{"end":"exit"}`))
	}
	// Another configuration.
	c.MustReeve(t, "node", "role", "add", node, "fragile", "--config", configuration(t, c, `{"end":"never"}`))
	ready("another configuration")
	// An operator who has dealt with the cause, which was not in Reeve: the role is tried anew.
	fail()
	refusedCommand(t, c, []string{"fragile is Failed"}, "node", "role", "restart", node, "fragile")
	// Another version of the plugin, which reads the same configuration but does not end.
	c.MustReeve(t, "node", "role", "remove", node, "fragile")
	refusedCommand(t, c, []string{"fragile is Failed"}, "node", "role", "add", node, "fragile")
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "fragile", map[string]string{"version": "0.2.0", "end": "never"}))
	ready("another version")
	if version := c.Status(t).Role("fragile").PluginVersion; version != "0.2.0" {
		t.Errorf("the version is %s", version)
	}
}
