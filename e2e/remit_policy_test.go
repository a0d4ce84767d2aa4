package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// TestRemitPolicy demands that every part of every sandbox is enforced, on a node that cannot: a role is held back with the list of what is missing, but for
// those without which nobody could change the policy.
func TestRemitPolicy(t *testing.T) {
	t.Parallel()
	user := ordinary
	if !isRoot() {
		user = nil
	}
	c := devcluster.New(t, devcluster.Options{Programs: suite.programs, Base: suite.base, User: user})
	c.Up(t)
	addLighthouse(t, c)
	// It starts before the cluster is reached, if the policy lets it.
	addTenant(t, c, "tenant", "cache=yes")
	before := c.AwaitUp(t, patience, append([]string{"tenant"}, withLighthouse...)...)
	var missing []string
	for _, part := range showRole(t, c, "lighthouse").Sandbox.Missing {
		missing = append(missing, part.Name)
	}
	if !slices.Contains(missing, "own-uid") {
		t.Fatalf("an ordinary user lacks only %v", missing)
	}

	c.MustReeve(t, "policy", "set", "isolation=required")
	blocked := func(s devcluster.Status, role string) bool {
		r := s.Role(role)
		for _, name := range missing {
			if !strings.Contains(r.Reason, name) {
				return false
			}
		}
		return r.State == "Blocked" && r.PID == 0
	}
	after := c.Await(t, patience, "the roles Blocked with "+strings.Join(missing, ", "), func(s devcluster.Status) bool {
		return blocked(s, "lighthouse") && blocked(s, "hostsfile") && blocked(s, "tenant")
	})
	for _, role := range []string{"consensus", "curator"} {
		if is, was := after.Role(role), before.Role(role); is.State != "Ready" || is.PID != was.PID {
			t.Errorf("%s is %+v, before %+v", role, is, was)
		}
	}
	c.Await(t, patience, "the node Home", func(s devcluster.Status) bool { return s.Membership.State == "Home" })
	if policy := c.MustReeve(t, "policy", "show"); !strings.Contains(policy.Stdout, "required") || !strings.Contains(policy.Stdout, "own-uid") {
		t.Errorf("the policy is shown as %s", policy)
	}

	// The node remembers it where the cluster does not come up: the curator's executable is away.
	stored := c.Path("data", "plugins", strings.Replace(before.Role("curator").Digest, ":", "-", 1))
	c.Down(t)
	if err := os.Rename(stored, stored+".away"); err != nil {
		t.Fatal(err)
	}
	c.StartCore(t, "") // and not by dev up, which ends a node that does not come up
	c.Await(t, patience, "without the cluster, the roles Blocked", func(s devcluster.Status) bool {
		return s.Membership.State != "Home" && s.Role("curator").PID == 0 && s.Role("consensus").PID != 0 && blocked(s, "tenant")
	})
	if err := os.Rename(stored+".away", stored); err != nil {
		t.Fatal(err)
	}
	c.Reeve(t, "node", "role", "restart", "self", "curator")
	c.Await(t, patience, "the node Home, and the roles Blocked", func(s devcluster.Status) bool {
		return s.Membership.State == "Home" && blocked(s, "lighthouse") && blocked(s, "tenant")
	})
	c.MustReeve(t, "policy", "set", "isolation=best-effort")
	c.AwaitUp(t, patience, append([]string{"tenant"}, withLighthouse...)...)
}
