package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRemitRoleRemoved takes a role from its node: its socket is closed, its watch ends, its process is gone, and so is all that it has started, however that
// tried to get away.
func TestRemitRoleRemoved(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		status := addTenant(t, c, "tenant", "user=tenant")
		held := holdWatch(t, c, status, "tenant")
		socket := mustTell(t, status, "tenant", post, "watch")
		if !exists(t, socket) {
			t.Fatalf("there is no %s", socket)
		}
		process := holdProcess(t, status.Role("tenant").PID)
		// Its PID is told by the child itself, and means the same outside.
		pid, err := strconv.Atoi(mustTell(t, status, "tenant", post, "daughter"))
		if err != nil {
			t.Fatal(err)
		}
		daughter := holdProcess(t, pid)
		if daughter.Leader != pid || daughter.Group == process.Group || daughter.Parent == process.PID {
			t.Fatalf("%s has not got away from %s", daughter.Process, process.Process)
		}
		c.MustReeve(t, "node", "role", "remove", "self", "tenant")
		held.awaitClosed(t)
		awaitEnded(t, process)
		awaitEnded(t, daughter)
		awaitGone(t, socket)
		onlyThese(t, c, c.AwaitUp(t, patience, devcluster.DefaultRoles...))
		for _, other := range c.Processes(t) {
			if isRoot() && other.UID != 0 && other.UID == process.UID && c.UIDs() != 0 {
				t.Errorf("left of the user of the role: %s", other)
			}
		}
	})
}

// TestRemitUserWithdrawnWithoutCore takes the store from a role while the core of its node is stopped: the role runs on, since nobody can stop it, and the
// store is closed to it all the same.
func TestRemitUserWithdrawnWithoutCore(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addTenant(t, c, "other", "user=other")
		status := addTenant(t, c, "tenant", "user=tenant")
		held := holdWatch(t, c, status, "tenant")
		ca, core := caFile(t, c), c.Core(t)
		c.Signal(t, core.PID, unix.SIGSTOP)
		t.Cleanup(func() {
			// If the test has failed in the middle: what is stopped cannot be ended by `reeve dev down`.
			if now, ok := c.FindCore(t); ok && now.PID == core.PID {
				_ = unix.Kill(core.PID, unix.SIGCONT)
			}
		})
		// By the curator itself.
		result := c.Run(t, suite.programs.Reeve(), "plugin", "withdraw", "tenant", "tenant:consensus-user",
			"--address", status.Cluster.Curators[0], "--ca", ca, "--owner-key", c.Path("owner.key"))
		if result.Code != 0 {
			t.Fatal(result)
		}
		held.awaitClosed(t)
		eventually.True(t, patience, "the watch of the role has ended", func() (bool, string) {
			got, err := tell(t, status, "tenant", get, "watch")
			return strings.HasPrefix(got, "ended"), fmt.Sprint(got, err)
		})
		// The role tries until its time is over.
		_, err := tell(t, status, "tenant", post, "put", "key", "late", "value", "late", "within", "5")
		refusedBy(t, err, "to write as a role without a user", "409")
		mustTell(t, status, "other", post, "put", "key", "key", "value", "not affected")
		c.Signal(t, core.PID, unix.SIGCONT)
		after := awaitOther(t, c, status, "tenant")
		if store := after.Role("tenant").Values["store"]; store == "<nil>" {
			t.Errorf("the store is open to the role: %+v", after.Role("tenant"))
		}
		c.MustReeve(t, "plugin", "grant", "tenant", "tenant:consensus-user")
		status = awaitOther(t, c, after, "tenant")
		mustTell(t, status, "tenant", get, "get", "key", "seen")
		_, err = tell(t, status, "tenant", get, "get", "key", "late")
		refusedBy(t, err, "what was written without a user", "there is no such key")
	})
}
