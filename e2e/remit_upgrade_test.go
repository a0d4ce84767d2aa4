package e2e

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// upgrade is a tenant that is brought from version to version.
type upgrade struct {
	c *devcluster.Cluster
	// good is the version that works.
	good string
}

// add adds a version, which asks for what the one before asks for.
func (u *upgrade) add(t *testing.T, version, behaviour string) {
	t.Helper()
	u.c.MustReeve(t, "plugin", "add", tenant(t, "version="+version, "behaviour="+behaviour))
}

// replaced adds a version that works, and waits for it. The one before was asked to stop.
func (u *upgrade) replaced(t *testing.T, version string) {
	t.Helper()
	u.add(t, version, "")
	u.runs(t, version)
	status := u.c.Status(t)
	stops := mustTell(t, status, "tenant", get, "kept", "name", "stops")
	if !strings.Contains(stops, u.good+" restart\n") {
		t.Errorf("version %s was not asked to stop: %q", u.good, stops)
	}
	u.good = version
}

// runs waits until a version is Ready as the one that the catalog has.
func (u *upgrade) runs(t *testing.T, version string) {
	t.Helper()
	awaitRole(t, u.c, "tenant", "version "+version+" Ready", func(s shownRole) bool {
		return s.Instance.State == "Ready" && s.Instance.PluginVersion == version && s.Instance.RolledBack == nil
	})
}

// takenBack adds a version that does not work, and waits until the good one runs again, with the reason.
func (u *upgrade) takenBack(t *testing.T, version, behaviour string, reasons ...string) {
	t.Helper()
	before := len(u.c.Events(t, "RoleRolledBack", "tenant"))
	u.add(t, version, behaviour)
	u.wentBack(t, version, before+1, reasons...)
}

func (u *upgrade) wentBack(t *testing.T, version string, events int, reasons ...string) {
	t.Helper()
	back := awaitRole(t, u.c, "tenant", u.good+" Ready again after "+version, func(s shownRole) bool {
		i := s.Instance
		return i.State == "Ready" && i.PluginVersion == u.good && i.RolledBack != nil && i.RolledBack.Version == version
	}).Instance.RolledBack
	all := u.c.Events(t, "RoleRolledBack", "tenant")
	if back.Version != version || len(all) != events {
		t.Fatalf("it went back by %d events from %+v, want %d and from %s", len(all), back, events, version)
	}
	event := all[len(all)-1]
	if event.Severity != "error" || event.Details["version"] != version || event.Details["to_version"] != u.good || event.Details["digest"] != back.Digest {
		t.Errorf("the event is %+v", event)
	}
	for _, reason := range reasons {
		if !strings.Contains(back.Reason, reason) || !strings.Contains(event.Details["cause"], reason) {
			t.Errorf("the reason is %q, and %q in the event, want %q in both", back.Reason, event.Details["cause"], reason)
		}
	}
	// It is the catalog's version all the same, and everybody sees that it does not run.
	if shown := showPlugin(t, u.c, "tenant"); shown.Version != version {
		t.Errorf("the catalog has %+v", shown)
	}
	if text := u.c.MustReeve(t, "status").Stdout; !strings.Contains(text, version) {
		t.Errorf("the status does not name %s: %s", version, text)
	}
}

// TestRemitUpgrade brings a role from version to version. One that works takes the place of the one before, which has its time to stop; one that does not,
// in whatever way, is taken back.
func TestRemitUpgrade(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addTenant(t, c, "tenant", "version=0.1.0")
		u := &upgrade{c, "0.1.0"}
		u.replaced(t, "0.2.0")

		u.takenBack(t, "0.3.0", "exit", "3")
		// To restart the role is to try again.
		before := len(c.Events(t, "RoleRolledBack", "tenant"))
		c.Reeve(t, "node", "role", "restart", "self", "tenant", "--wait=none")
		c.Await(t, patience, "it went back once more", func(devcluster.Status) bool {
			return len(c.Events(t, "RoleRolledBack", "tenant")) == before+1
		})
		u.wentBack(t, "0.3.0", before+1, "3")
		// A newer one that works ends it.
		u.replaced(t, "0.4.0")
		u.takenBack(t, "0.5.0", "refuse", "nothing pleases this version")
		u.replaced(t, "0.6.0")
		u.takenBack(t, "0.7.0", "hang")
		u.replaced(t, "0.8.0")
		othersAreWell(t, c)
	})
}

// TestRemitUpgradeKilled kills the core while a version is on trial, and after it was taken back: the one that follows knows both.
func TestRemitUpgradeKilled(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addTenant(t, c, "tenant", "version=0.1.0")
		u := &upgrade{c, "0.1.0"}
		u.add(t, "0.2.0", "")
		u.runs(t, "0.2.0")
		killed := func() devcluster.Status {
			t.Helper()
			c.Kill(t, c.Core(t).PID)
			c.Up(t)
			return c.AwaitUp(t, patience, "tenant")
		}
		status := killed()
		if role := status.Role("tenant"); role.PluginVersion != "0.2.0" || !strings.Contains(role.Reason, "on trial") {
			t.Errorf("in the middle of its trial the role is %+v", role)
		}
		if _, err := tell(t, status, "tenant", post, "exit"); err == nil {
			t.Error("the role answers when it was to end")
		}
		// How it ended only the core would know that launched it.
		u.wentBack(t, "0.2.0", 1)
		awaitWritten(t, c, "RoleRolledBack", "tenant", 1)
		status = killed()
		if role := status.Role("tenant"); role.PluginVersion != "0.1.0" {
			t.Errorf("a version that was taken back runs again: %+v", role)
		}
		u.wentBack(t, "0.2.0", 1)
	})
}

// TestRemitUpgradeTwiceBad adds two versions that do not work, one after the other: the last one that did runs.
func TestRemitUpgradeTwiceBad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Up(t)
	addTenant(t, c, "tenant", "version=0.1.0")
	u := &upgrade{c, "0.1.0"}
	u.takenBack(t, "0.2.0", "exit")
	u.takenBack(t, "0.3.0", "exit")
	u.replaced(t, "0.4.0")
}
