package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// TestForeground ends `reeve dev up` in every way in which it may end: nothing that it started is left.
func TestForeground(t *testing.T) {
	t.Parallel()
	for name, test := range inOrder(map[string]struct {
		end  func(*testing.T, *devcluster.Running)
		code int
	}{
		"Ctrl-C":  {func(t *testing.T, r *devcluster.Running) { r.Interrupt(t) }, 0},
		"SIGINT":  {func(t *testing.T, r *devcluster.Running) { r.Signal(t, syscall.SIGINT) }, 0},
		"SIGTERM": {func(t *testing.T, r *devcluster.Running) { r.Signal(t, syscall.SIGTERM) }, 0},
		"SIGKILL": {func(t *testing.T, r *devcluster.Running) { r.Signal(t, syscall.SIGKILL) }, -1},
	}) {
		if !soak.Enabled && name != "Ctrl-C" && name != "SIGKILL" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
				up := c.Start(t, "dev", "up")
				c.AwaitUp(t, patience, devcluster.DefaultRoles...)
				addLighthouse(t, c)
				status := c.AwaitUp(t, patience, withLighthouse...)
				running := handles(t, c, status)
				test.end(t, up)
				if result := up.Wait(t, patience); result.Code != test.code {
					t.Errorf("want exit code %d: %s", test.code, result)
				}
				// Where it ends by itself it has stopped everything before.
				if test.code == 0 {
					c.NoProcesses(t)
				}
				c.AwaitNoProcesses(t, patience)
				// The last of its threads may end a moment after it is shown as ended.
				for _, handle := range running {
					awaitEnded(t, handle)
				}
			})
		})
	}
}

// TestForegroundInterruptedEarly interrupts it while the cluster is being made.
func TestForegroundInterruptedEarly(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		up := c.Start(t, "dev", "up")
		eventually.True(t, patience, "the first role begun", func() (bool, string) {
			for _, process := range c.Processes(t) {
				if strings.Contains(process.Variable(devcluster.Instance), "/consensus/") {
					return true, ""
				}
			}
			return false, "no process of it"
		})
		up.Interrupt(t)
		if result := up.Wait(t, patience); result.Code != 0 {
			t.Errorf("want exit code 0: %s", result)
		}
		c.NoProcesses(t)
		finishes(t, c)
	})
}

// TestGracefulStop stops reeved by itself: it stops its roles, and says that it has ended well. Its operator has the umask of a group that works together.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		core := c.Core(t)
		if err := syscall.Kill(core.PID, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, core)
		c.NoProcesses(t)
		for _, role := range devcluster.DefaultRoles {
			log, err := os.ReadFile(c.Path("data", "logs", role+".log"))
			if err != nil || !strings.Contains(string(log), `"the role stopped"`) {
				t.Errorf("%s has not stopped by itself when it was asked to (%v):\n%s", role, err, log)
			}
		}
		run, err := os.Readlink(c.Path("run"))
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range []string{"instances", "plugin", "access", "host"} {
			entries, err := os.ReadDir(run + "/" + left)
			if err == nil && len(entries) > 0 {
				t.Errorf("%s of instances that have stopped: %v", left, entries)
			}
		}
	}, underUmask("002")...)
}
