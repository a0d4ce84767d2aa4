package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// The exit codes that reeve promises.
const (
	exitOK       = 0
	exitFailed   = 1
	exitNotFound = 3
	exitRefused  = 4
)

// reeve runs reeve for nobody's cluster but the one that the arguments name.
func reeve(t *testing.T, c *devcluster.Cluster, code int, arguments ...string) devcluster.Result {
	t.Helper()
	result := c.Run(t, suite.programs.Reeve(), arguments...)
	if result.Code != code {
		t.Errorf("the exit code has to be %d: %s", code, result)
	}
	return result
}

// fromAfar is the way to the cluster's curator of somebody on another machine.
func fromAfar(t *testing.T, c *devcluster.Cluster) []string {
	t.Helper()
	return []string{"--address", c.Status(t).Cluster.Curators[0], "--ca", caFile(t, c)}
}

// makeKey makes a person's key, and returns its file and the public half.
func makeKey(t *testing.T, c *devcluster.Cluster, who string) (file, public string) {
	t.Helper()
	file = filepath.Join(c.Home, who+".key")
	return file, strings.TrimSpace(reeve(t, c, exitOK, "operator", "key", file).Stdout)
}

// addOperator makes an operator and logs it in, from afar, to a context of its name.
func addOperator(t *testing.T, c *devcluster.Cluster, name, role string) {
	t.Helper()
	file, public := makeKey(t, c, name)
	reeve(t, c, exitOK, "operator", "add", name, "--role", role, "--public-key", public, "--dir", c.Directory)
	reeve(t, c, exitOK, append([]string{"login", "--name", name, "--key", file}, fromAfar(t, c)...)...)
}

// awaitLetIn waits until a node lets an operator in: it hears of the operators from the curator, which may be a while after the curator has said that there is one more.
func awaitLetIn(t *testing.T, c *devcluster.Cluster, node, name string) {
	t.Helper()
	eventually.True(t, patience, "the node lets in "+name, func() (bool, string) {
		result := c.Run(t, suite.programs.Reeve(), "status", node, "--context", name)
		return result.Code == exitOK, result.String()
	})
}

// TestOperatorsPermissions has people of every kind run commands of every kind, as they would.
func TestOperatorsPermissions(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		node := c.Up(t).Node.ID
		reeve(t, c, exitOK, append([]string{"login", "--name", "owner", "--key", c.Path("owner.key")}, fromAfar(t, c)...)...)
		addOperator(t, c, "olivia", "owner")
		addOperator(t, c, "alice", "operator")
		addOperator(t, c, "victor", "viewer")
		for _, name := range []string{"olivia", "alice", "victor"} {
			awaitLetIn(t, c, node, name)
		}
		// The same again is no harm, another key or role under the same name is refused.
		_, public := makeKey(t, c, "mallory")
		reeve(t, c, exitRefused, "operator", "add", "alice", "--role", "operator", "--public-key", public, "--dir", c.Directory)
		reeve(t, c, exitNotFound, "operator", "revoke", "nobody", "--dir", c.Directory)

		const yes, no = exitOK, exitRefused
		key := public
		for _, test := range []struct {
			command                 []string
			viewer, operator, owner int
		}{
			{[]string{"whoami"}, yes, yes, yes},
			{[]string{"node", "list"}, yes, yes, yes},
			{[]string{"plugin", "list"}, yes, yes, yes},
			{[]string{"operator", "list"}, yes, yes, yes},
			{[]string{"audit"}, yes, yes, yes},
			{[]string{"describe", "role", node, "hostsfile"}, yes, yes, yes},
			// These go to the node's own API.
			{[]string{"status", node}, yes, yes, yes},
			{[]string{"events", node}, yes, yes, yes},
			{[]string{"logs", node, "consensus"}, yes, yes, yes},
			{[]string{"node", "metrics", node}, yes, yes, yes},
			{[]string{"node", "role", "restart", node, "hostsfile", "--dry-run"}, no, yes, yes},
			{[]string{"store", "recover", node, "--dry-run"}, no, yes, yes},
			// And these to the cluster's.
			{[]string{"node", "role", "remove", node, "hostsfile", "--dry-run"}, no, yes, yes},
			{[]string{"node", "role", "add", node, "hostsfile", "--dry-run"}, no, yes, yes},
			{[]string{"plugin", "add", "--approve", suite.programs.Lighthouse(), "--dry-run"}, no, no, yes},
			{[]string{"operator", "add", "bob", "--role", "viewer", "--public-key", key, "--dry-run"}, no, no, yes},
			{[]string{"operator", "revoke", "victor", "--dry-run"}, no, no, yes},
		} {
			for who, code := range inOrder(map[string]int{"victor": test.viewer, "alice": test.operator, "olivia": test.owner, "owner": test.owner}) {
				result := reeve(t, c, code, append(slices.Clone(test.command), "--context", who)...)
				if code != exitOK && !strings.Contains(result.Stderr, "operator "+who) {
					t.Errorf("it does not say who was refused: %s", result)
				}
			}
		}
		snapshots(t, c)
		// Somebody whom nobody has added, and somebody who shows nothing.
		way := fromAfar(t, c)
		reeve(t, c, exitRefused, append([]string{"login", "--name", "mallory", "--key", filepath.Join(c.Home, "mallory.key")}, way...)...)
		reeve(t, c, exitRefused, append([]string{"node", "list", "--owner-key", filepath.Join(c.Home, "mallory.key")}, way...)...)
		// An operator's own key is good for logging in, and for nothing else.
		reeve(t, c, exitRefused, append([]string{"node", "list", "--owner-key", filepath.Join(c.Home, "alice.key")}, way...)...)
		onNode(t, c)
	})
}

// onNode looks for what was done, or not done, to a node in its events.
func onNode(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	calls := make(map[string]string)
	for _, event := range c.Events(t, "Call", "") {
		calls[event.Details["caller"]+" "+event.Details["rpc"]] = event.Details["code"] + " " + event.Severity
	}
	for call, want := range map[string]string{
		"operator victor RestartRole":  "PermissionDenied warning",
		"operator victor RecoverStore": "PermissionDenied warning",
		"operator alice RestartRole":   "OK info",
		"operator alice ImportPlugin":  "PermissionDenied warning",
		"operator olivia ImportPlugin": "OK info",
		"owner RestartRole":            "OK info",
	} {
		if calls[call] != want {
			t.Errorf("the node has recorded %q of %s, want %q; all of it: %v", calls[call], call, want, calls)
		}
	}
}

// TestAudit wants every call of the cluster API in the audit log, once: who, what, with what result.
func TestAudit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.Up(t).Node.ID
	addOperator(t, c, "victor", "viewer")
	before := c.Audit(t)
	stranger, _ := makeKey(t, c, "stranger")
	way := fromAfar(t, c)

	const listed = 3
	for range listed {
		reeve(t, c, exitOK, "node", "list", "--context", "victor")
	}
	reeve(t, c, exitRefused, "node", "role", "remove", node, "hostsfile", "--context", "victor")
	reeve(t, c, exitRefused, append([]string{"plugin", "list", "--owner-key", stranger}, way...)...)
	c.MustReeve(t, "node", "role", "remove", node, "hostsfile")
	refusedCommand(t, c, []string{"curator"}, "node", "role", "remove", node, "curator")
	refusedCommand(t, c, []string{"ghost"}, "node", "role", "add", node, "ghost")
	c.MustReeve(t, "operator", "revoke", "victor", "--dry-run")
	c.MustReeve(t, "operator", "revoke", "victor")
	reeve(t, c, exitRefused, "audit", "--context", "victor")

	after := c.Audit(t)
	if len(after) < len(before) || after[len(before)-1].Sequence != before[len(before)-1].Sequence {
		t.Fatalf("the log has not grown: %d entries, before %d", len(after), len(before))
	}
	counted := make(map[string]int)
	last := uint64(0)
	for _, entry := range after {
		if entry.Sequence <= last {
			t.Errorf("the entry %d follows the entry %d", entry.Sequence, last)
		}
		last = entry.Sequence
	}
	for _, entry := range after[len(before):] {
		what := fmt.Sprintf("%s %s %s", entry.Caller, entry.RPC, entry.Code)
		for _, name := range []string{"role", "name", "dry_run"} {
			if value := entry.Parameters[name]; value != "" {
				what += " " + name + "=" + value
			}
		}
		counted[what]++
		if entry.RPC == "ListAudit" && entry.Code != "OK" && !strings.Contains(entry.Reason, "victor") {
			t.Errorf("the entry does not say whose session was refused: %+v", entry)
		}
		if entry.Address == "" || entry.Code != "OK" && entry.Reason == "" || entry.Code == "OK" && entry.Reason != "" {
			t.Errorf("the entry does not say from where, or why: %+v", entry)
		}
	}
	for what, want := range map[string]int{
		"operator victor ListNodes OK":                               listed + 1, // the name of the node whose role was to be removed
		"operator victor RemoveRole PermissionDenied role=hostsfile": 1,
		"unknown ListPlugins Unauthenticated":                        1,
		"owner RemoveRole OK role=hostsfile":                         1,
		"owner RemoveRole FailedPrecondition role=curator":           1,
		"owner AddRole NotFound role=ghost":                          1,
		"owner RevokeOperator OK name=victor dry_run=true":           1,
		"owner RevokeOperator OK name=victor":                        1,
		// A session of nobody any more proves nothing; the reason says whose it was.
		"unknown ListAudit Unauthenticated": 1,
		"owner ListAudit OK":                1, // the first look; the second is not in its own answer
	} {
		if counted[what] != want {
			t.Errorf("%d entries say %q, want %d; all of them: %v", counted[what], what, want, counted)
		}
	}
}

// TestRevoked revokes an operator who is looking at the cluster: that ends everything that the operator has.
func TestRevoked(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.Up(t).Node.ID
	addOperator(t, c, "alice", "operator")
	awaitLetIn(t, c, node, "alice")
	streams := map[string]*devcluster.Running{}
	for _, arguments := range [][]string{
		{"events", node, "-w"},
		{"logs", node, "consensus", "-f"},
		// The cluster's stream of the node, and the node's own.
		{"wait", node, "--for", "healthy", "--for", "role/lighthouse=Ready", "--timeout", "5m"},
		{"wait", node, "--for", "role/lighthouse=Ready", "--timeout", "5m"},
	} {
		streams[strings.Join(arguments, " ")] = c.StartAlone(t, append(arguments, "--context", "alice")...)
	}
	for name, stream := range streams {
		eventually.True(t, patience, name+" shows something", func() (bool, string) {
			stdout, stderr := stream.Output()
			return stdout != "" || strings.Contains(stderr, "not reported by the node yet"), stdout + stderr
		})
	}
	c.MustReeve(t, "operator", "revoke", "alice")
	for name, stream := range streams {
		if result := stream.Wait(t, patience); result.Code != exitRefused || !strings.Contains(result.Stderr, "alice") {
			t.Errorf("%s: the operator was revoked, and it ends so: %s", name, result)
		}
	}
	for _, arguments := range [][]string{{"node", "list"}, {"status", node}, {"whoami"}} {
		reeve(t, c, exitRefused, append(arguments, "--context", "alice")...)
	}
	key := filepath.Join(c.Home, "alice.key")
	reeve(t, c, exitRefused, "login", "--name", "alice", "--key", key)
	// Under the same name again, it is somebody else as far as the former session is concerned.
	c.MustReeve(t, "operator", "add", "alice", "--role", "viewer", "--public-key", publicKey(t, key))
	reeve(t, c, exitRefused, "node", "list", "--context", "alice")
	reeve(t, c, exitOK, "login", "--name", "alice", "--key", key)
	reeve(t, c, exitOK, "node", "list", "--context", "alice")
	awaitLetIn(t, c, node, "alice")
	reeve(t, c, exitRefused, "node", "role", "restart", node, "hostsfile", "--context", "alice")
}
