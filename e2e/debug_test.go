package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// debugSocket is where a plugin that was started with -debug says that it waits.
var debugSocket = regexp.MustCompile(`reeve node role debug self lighthouse (/\S+\.sock)`)

// byHand starts the lighthouse as somebody does who debugs it, and returns where it waits for a node.
func byHand(t *testing.T, c *devcluster.Cluster) (process *devcluster.Running, socket string) {
	t.Helper()
	process = c.StartProgram(t, suite.programs.Lighthouse(), "-debug")
	t.Cleanup(func() {
		_ = unix.Kill(process.PID, unix.SIGKILL) // if it has not ended
		<-process.Done()
		_ = os.RemoveAll(filepath.Dir(socket)) // which one that is killed leaves
	})
	eventually.True(t, patience, "it says where it waits", func() (bool, string) {
		_, stderr := process.Output()
		if found := debugSocket.FindStringSubmatch(stderr); found != nil {
			socket = found[1]
		}
		return socket != "", stderr
	})
	return process, socket
}

// TestDebuggedRole has a role that was started by hand take the place of the node's own: it has the same store, may stand still, and leaves nothing but its place.
func TestDebuggedRole(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.WriteParameters(t, func(p *nodev1.Parameters) {
			setLiveness(p, notTooSoon)
			p.DebugRoles = true
		})
		c.Up(t)
		addLighthouse(t, c)
		before := c.AwaitUp(t, patience, withLighthouse...)
		mustCount(t, http.MethodPost, before.Role("lighthouse"), 1)
		process, socket := byHand(t, c)

		c.MustReeve(t, "node", "role", "debug", "self", "lighthouse", socket, "--dry-run")
		if now := c.Status(t).Role("lighthouse"); now.Debug || now.PID != before.Role("lighthouse").PID {
			t.Errorf("with --dry-run it was done: %+v", now)
		}
		c.MustReeve(t, "node", "role", "debug", "self", "lighthouse", socket, "--wait=ready")
		debugged := c.Status(t).Role("lighthouse")
		if !debugged.Debug || debugged.PID != process.PID || !strings.Contains(debugged.Reason, "debugged") {
			t.Fatalf("process %d was to be the role, which is %+v", process.PID, debugged)
		}
		// The store lets it to the keys of its ConsensusUser.
		mustCount(t, http.MethodPost, debugged, 2)

		// It stands still, and so does a role of the node's own, which is found out.
		process.Signal(t, unix.SIGSTOP)
		c.Signal(t, before.Role("hostsfile").PID, unix.SIGSTOP)
		c.Await(t, patience, "another hostsfile", func(s devcluster.Status) bool {
			return s.Role("hostsfile").State == "Ready" && s.Role("hostsfile").PID != before.Role("hostsfile").PID
		})
		process.Signal(t, unix.SIGCONT)
		mustCount(t, http.MethodPost, debugged, 3)
		if now := c.Status(t).Role("lighthouse"); now.InstanceID != debugged.InstanceID {
			t.Errorf("it was %+v and is %+v", debugged, now)
		}

		// As Ctrl-C does.
		process.Interrupt(t)
		if result := process.Wait(t, patience); result.Code != 0 {
			t.Errorf("it did not end as it should: %s", result)
		}
		after := c.Await(t, patience, "a lighthouse of the node's own", func(s devcluster.Status) bool {
			return s.Up(withLighthouse...) && s.Role("lighthouse").PID != process.PID
		}).Role("lighthouse")
		if after.Debug || after.Restarts != 0 || after.LastFailure != nil {
			t.Errorf("afterwards it is %+v", after)
		}
		mustCount(t, http.MethodPost, after, 4)
		for _, kind := range []string{"RoleDebugged", "RoleStopped"} {
			if len(c.Events(t, kind, "lighthouse")) == 0 {
				t.Errorf("no event %s", kind)
			}
		}

		// A core that is killed knows nothing of the next one's debugger: that ends the process and goes on with its own.
		process, socket = byHand(t, c)
		c.MustReeve(t, "node", "role", "debug", "self", "lighthouse", socket, "--wait=ready")
		c.Kill(t, c.Core(t).PID)
		c.MustReeve(t, "dev", "up", "--detach")
		process.Wait(t, patience)
		c.Await(t, patience, "a lighthouse of the next core's own", func(s devcluster.Status) bool {
			return s.Up(withLighthouse...) && !s.Role("lighthouse").Debug
		})
	})
}

// TestNotDebugged asks a node for it that does not allow it, and one whose cluster does not.
func TestNotDebugged(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, c *devcluster.Cluster, socket, want string) {
		t.Helper()
		before := c.Status(t).Role("lighthouse")
		if result := c.Reeve(t, "node", "role", "debug", "self", "lighthouse", socket); result.Code == 0 || !strings.Contains(result.Stderr, want) {
			t.Errorf("want %q: %s", want, result)
		}
		if now := c.Status(t).Role("lighthouse"); now.InstanceID != before.InstanceID || now.Debug {
			t.Errorf("the role was %+v and is %+v", before, now)
		}
	}
	t.Run("by its parameters", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.WriteParameters(t, func(*nodev1.Parameters) {})
		c.Up(t)
		addLighthouse(t, c)
		_, socket := byHand(t, c)
		refused(t, c, socket, "debug_roles: true")
	})
	t.Run("by its cluster", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.Up(t)
		addLighthouse(t, c)
		_, socket := byHand(t, c)
		refused(t, c, "/tmp", "is not a socket")
		// What this machine cannot enforce of the sandbox of the roles that run already may stop them, which is of no interest here.
		c.MustReeve(t, "policy", "set", "isolation=required")
		eventually.True(t, patience, "the node has heard of the policy", func() (bool, string) {
			result := c.Reeve(t, "node", "role", "debug", "self", "lighthouse", socket, "--dry-run")
			return result.Code != 0 && strings.Contains(result.Stderr, "isolation=required"), result.String()
		})
	})
}
