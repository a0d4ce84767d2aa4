package e2e

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// TestRemitAdd adds plugins: nothing runs that was not approved, and what gets into another's way or cannot be believed is refused.
func TestRemitAdd(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		first := tenant(t, "version=0.1.0", "user=tenant")
		added := c.MustReeve(t, "plugin", "add", first)
		if !strings.Contains(added.Stdout+added.Stderr, "reeve plugin approve tenant") {
			t.Errorf("it does not say what to do next: %s", added)
		}
		refused(t, c.Reeve(t, "node", "role", "add", "self", "tenant"), "waits", "reeve plugin approve tenant")
		if role := c.Status(t).Role("tenant"); role.Role != "" {
			t.Errorf("a plugin that nobody approved: %+v", role)
		}
		c.MustReeve(t, "plugin", "approve", "tenant", "--yes")
		c.MustReeve(t, "node", "role", "add", "self", "tenant")
		before := c.Status(t)
		was := catalog(t, c)

		refused(t, c.Reeve(t, "plugin", "add", "--approve", tenant(t, "plugin=shifty", "role=shifty", "behaviour=unsteady")), "not always the same", "0.1.0-")
		refused(t, c.Reeve(t, "plugin", "add", "--approve", tenant(t, "plugin=thief", "role=tenant")), "thief", `"tenant"`)
		refused(t, c.Reeve(t, "plugin", "add", "--approve", tenant(t, "plugin=thief", "role=thief", "user=tenant")), "thief", `"tenant"`)
		if now := catalog(t, c); now != was {
			t.Errorf("the catalog is %s, before %s", now, was)
		}

		newVersionWaits(t, c, before)
		privilegedByWord(t, c)
	})
}

// newVersionWaits adds versions that ask for more than was decided on: the one before runs on, in the same process, and exactly what is new is shown.
func newVersionWaits(t *testing.T, c *devcluster.Cluster, before devcluster.Status) {
	t.Helper()
	same := func() {
		t.Helper()
		if is, was := c.Status(t).Role("tenant"), before.Role("tenant"); is.PID != was.PID || is.PluginVersion != was.PluginVersion {
			t.Errorf("the role is %+v, before %+v", is, was)
		}
	}
	second := tenant(t, "version=0.2.0", "user=tenant", "asks=listen port=any, connect port=53, limit memory=512Mi")
	c.MustReeve(t, "plugin", "add", second)
	same()
	more := []string{"tenant: connect port=53", "tenant: limit memory=512Mi"}
	shown := showPlugin(t, c, "tenant")
	if shown.Waiting == nil || shown.Version != "0.1.0" || shown.Waiting.Version != "0.2.0" || !reflect.DeepEqual(names(shown.Waiting.New), more) {
		t.Errorf("it is shown %+v, want that 0.2.0 waits with %v", shown, more)
	}
	var diff struct {
		Same    bool
		Changes []struct{ Role, What, Before, After string }
	}
	document(t, c.MustReeve(t, "plugin", "diff", "tenant", "-o", "json"), &diff)
	var changes []string
	for _, change := range diff.Changes {
		if !strings.HasPrefix(change.What, "digest") {
			changes = append(changes, strings.Join([]string{change.Role, change.What, change.Before, change.After}, "|"))
		}
	}
	slices.Sort(changes)
	if want := []string{"tenant|grant||connect port=53", "tenant|grant||limit memory=512Mi", "|version|0.1.0|0.2.0"}; diff.Same || !reflect.DeepEqual(changes, want) {
		t.Errorf("the difference is %q, want %q", changes, want)
	}
	c.MustReeve(t, "plugin", "approve", "tenant", "--yes", "--without", "tenant:connect")
	after := c.Await(t, patience, "version 0.2.0 Ready", func(s devcluster.Status) bool {
		return s.Up("tenant") && s.Role("tenant").PluginVersion == "0.2.0"
	})
	if after.Role("tenant").PID == before.Role("tenant").PID {
		t.Errorf("another version is the same process: %s", after)
	}
	granted := []string{"tenant: consensus-user tenant", "tenant: limit memory=512Mi", "tenant: listen port=any"}
	if role := showRole(t, c, "tenant"); !reflect.DeepEqual(names([]asked{role.Granted}), granted) || len(role.Sandbox.Connects) != 0 ||
		role.Sandbox.MemoryBytes != 512<<20 && !role.misses("cgroup-memory") {
		t.Errorf("it runs as %s, want it with %v", role, granted)
	}
	if plugin := showPlugin(t, c, "tenant"); plugin.Waiting != nil || !reflect.DeepEqual(names(plugin.Roles), granted) {
		t.Errorf("the catalog has %+v, want %v granted and nothing that waits", plugin, granted)
	}
	// What was refused once is not asked for again: a version with the same wishes runs at once, and is not granted it either.
	c.MustReeve(t, "plugin", "add", tenant(t, "version=0.3.0", "user=tenant", "asks=listen port=any, connect port=53, limit memory=512Mi"))
	c.Await(t, patience, "version 0.3.0 Ready", func(s devcluster.Status) bool { return s.Up("tenant") && s.Role("tenant").PluginVersion == "0.3.0" })
	if role := showRole(t, c, "tenant"); !reflect.DeepEqual(names([]asked{role.Granted}), granted) {
		t.Errorf("it is granted %v, want %v", names([]asked{role.Granted}), granted)
	}
}

// privilegedByWord adds a role that wants no sandbox: it has none only after that word was said.
func privilegedByWord(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	refused(t, c.Reeve(t, "plugin", "add", "--approve", tenant(t, "plugin=boss", "role=boss", "asks=listen port=any, privileged")), "privileged")
	c.MustReeve(t, "plugin", "add", tenant(t, "plugin=boss", "role=boss", "asks=listen port=any, privileged"))
	refused(t, c.Reeve(t, "plugin", "approve", "boss", "--yes"), "privileged")
	refused(t, c.Reeve(t, "node", "role", "add", "self", "boss"), "reeve plugin approve boss")
	// Without that power it is a role like any other.
	c.MustReeve(t, "plugin", "approve", "boss", "--yes", "--without", "boss:privileged")
	c.MustReeve(t, "node", "role", "add", "self", "boss")
	if process := readProcess(t, c.Status(t).Role("boss").PID); process.field("NoNewPrivs") != "1" || isRoot() && c.UIDs() != 0 && process.field("Uid") == "0" {
		t.Errorf("without being privileged it runs as %s", process)
	}
	refused(t, c.Reeve(t, "plugin", "grant", "boss", "boss:privileged"), "privileged")
	c.MustReeve(t, "plugin", "grant", "boss", "boss:privileged", "--privileged")
	shown := awaitRole(t, c, "boss", "Ready and privileged", func(s shownRole) bool { return s.Instance.State == "Ready" && s.Instance.Tier == "privileged" })
	process, core := readProcess(t, shown.Instance.PID), readProcess(t, c.Core(t).PID)
	if process.field("Uid") != core.field("Uid") || process.field("CapEff") != core.field("CapEff") || process.field("Seccomp") != core.field("Seccomp") {
		t.Errorf("a privileged role is %s, and the core is %s", process, core)
	}
	if shown.Sandbox.Tier != "privileged" || len(shown.Sandbox.DeniedCalls) != 0 {
		t.Errorf("it is shown as %s", shown)
	}
}

// TestRemitWithdrawn takes back what a role was granted: a call of the host is refused, and the store is closed, also to a connection that was open.
func TestRemitWithdrawn(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		file := filepath.Join(c.Home, "motd")
		if err := os.WriteFile(file, []byte("before"), 0o644); err != nil {
			t.Fatal(err)
		}
		// The core's own, as the directory is in which it runs.
		home, err := os.Stat(c.Home)
		if err != nil {
			t.Fatal(err)
		}
		if owner := home.Sys().(*syscall.Stat_t); os.Chown(file, int(owner.Uid), int(owner.Gid)) != nil {
			t.Fatalf("%s cannot be given to %d:%d", file, owner.Uid, owner.Gid)
		}
		status := addTenant(t, c, "tenant", "user=tenant", "asks=listen port=any, replace-file path="+file)
		mustTell(t, status, "tenant", post, "put", "key", "key", "value", "mine")
		mustTell(t, status, "tenant", post, "replace", "path", file, "value", "replaced")
		content, err := os.ReadFile(file)
		if err != nil || string(content) != "replaced" {
			t.Fatalf("the file is %q (%v)", content, err)
		}

		c.MustReeve(t, "plugin", "withdraw", "tenant", "tenant:replace-file")
		status = awaitOther(t, c, status, "tenant")
		_, err = tell(t, status, "tenant", post, "replace", "path", file, "value", "once more")
		refusedBy(t, err, "to replace a file without the grant", "replace-file")
		if content, err := os.ReadFile(file); err != nil || string(content) != "replaced" {
			t.Errorf("the file is %q (%v)", content, err)
		}
		if got := mustTell(t, status, "tenant", get, "get", "key", "key"); got != "mine" {
			t.Errorf("the role reads %q", got)
		}

		held := holdWatch(t, c, status, "tenant")
		c.MustReeve(t, "plugin", "withdraw", "tenant", "tenant:consensus-user")
		held.awaitClosed(t)
		status = awaitOther(t, c, status, "tenant")
		if reason := status.Role("tenant").Values["store"]; !strings.Contains(reason, "ConsensusUser") && !strings.Contains(reason, "consensus-user") {
			t.Errorf("the role is told of the store %q", reason)
		}
		_, err = tell(t, status, "tenant", get, "get", "key", "key")
		refusedBy(t, err, "to read without the user", "the store is not open")
		// What it kept there stays for when it is granted again.
		c.MustReeve(t, "plugin", "grant", "tenant", "tenant:consensus-user")
		status = awaitOther(t, c, status, "tenant")
		if got := mustTell(t, status, "tenant", get, "get", "key", "key"); got != "mine" {
			t.Errorf("the role reads %q", got)
		}
	})
}

// awaitOther waits until a role is Ready in another process than before.
func awaitOther(t *testing.T, c *devcluster.Cluster, before devcluster.Status, role string) devcluster.Status {
	t.Helper()
	return c.Await(t, patience, role+" Ready in another process", func(s devcluster.Status) bool {
		return s.Up(role) && s.Role(role).PID != before.Role(role).PID
	})
}

// TestRemitRemove removes a plugin, with what it kept and without.
func TestRemitRemove(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		status := addTenant(t, c, "tenant", "user=tenant")
		directory := c.Path("data", "roles", "tenant")
		mustTell(t, status, "tenant", post, "put", "key", "key", "value", "in the store")
		mustTell(t, status, "tenant", post, "keep", "name", "file", "value", "on disk")
		refused(t, c.Reeve(t, "plugin", "remove", "tenant"), "tenant", "--remove-roles")

		held := holdWatch(t, c, status, "tenant")
		process := holdProcess(t, status.Role("tenant").PID)
		c.MustReeve(t, "plugin", "remove", "tenant", "--remove-roles")
		held.awaitClosed(t)
		awaitEnded(t, process)
		c.Await(t, patience, "no tenant", func(s devcluster.Status) bool { return s.Role("tenant").Role == "" })
		if list := catalog(t, c); strings.Contains(list, "tenant") {
			t.Errorf("the catalog still has it: %s", list)
		}
		if !exists(t, directory) {
			t.Error("the data is gone, and nobody asked for that")
		}
		status = addTenant(t, c, "tenant", "user=tenant")
		if got := mustTell(t, status, "tenant", get, "get", "key", "key"); got != "in the store" {
			t.Errorf("the key is %q", got)
		}
		if got := mustTell(t, status, "tenant", get, "kept", "name", "file"); got != "on disk" {
			t.Errorf("the file is %q", got)
		}

		c.MustReeve(t, "plugin", "remove", "tenant", "--remove-roles", "--wipe", "--yes")
		awaitGone(t, directory)
		awaitGone(t, c.Path("data", "logs", "tenant.log"))
		status = addTenant(t, c, "tenant", "user=tenant")
		_, err := tell(t, status, "tenant", get, "get", "key", "key")
		refusedBy(t, err, "a key that was wiped", "there is no such key")
		_, err = tell(t, status, "tenant", get, "kept", "name", "file")
		refusedBy(t, err, "a file that was wiped", "no such file")

		// A role that is taken from a node alone, with what it has there and nothing of what it has in the store.
		mustTell(t, status, "tenant", post, "put", "key", "key", "value", "again")
		mustTell(t, status, "tenant", post, "keep", "name", "file", "value", "again")
		c.MustReeve(t, "node", "role", "remove", "self", "tenant", "--wipe", "--yes")
		awaitGone(t, directory)
		c.MustReeve(t, "node", "role", "add", "self", "tenant")
		status = c.Status(t)
		if got := mustTell(t, status, "tenant", get, "get", "key", "key"); got != "again" {
			t.Errorf("the key is %q", got)
		}
		_, err = tell(t, status, "tenant", get, "kept", "name", "file")
		refusedBy(t, err, "a file that was wiped", "no such file")
	})
}

// holdProcess holds a process, to see it end.
func holdProcess(t *testing.T, pid int) *procfs.Handle {
	t.Helper()
	process, err := procfs.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := procfs.Hold(process)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = handle.Close() })
	if handle.Ended() {
		t.Fatalf("%s has ended", process)
	}
	return handle
}
