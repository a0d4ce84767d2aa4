package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// withLighthouse are the roles of a cluster with the example.
var withLighthouse = append([]string{"lighthouse"}, devcluster.DefaultRoles...)

// TestKilledRole kills each role in turn: it comes back, and the others do not notice. Its operator has the strictest umask: all that Reeve makes is passable for its roles nevertheless.
func TestKilledRole(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addLighthouse(t, c)
		before := c.AwaitUp(t, patience, withLighthouse...)
		mustCount(t, http.MethodPost, before.Role("lighthouse"), 1)
		for n, victim := range withLighthouse {
			c.Kill(t, before.Role(victim).PID)
			after := c.Await(t, patience, "another process of "+victim+", everything Ready and the node Home", func(s devcluster.Status) bool {
				return s.Up(withLighthouse...) && s.Role(victim).PID != before.Role(victim).PID
			})
			for _, role := range withLighthouse {
				was, is := before.Role(role), after.Role(role)
				if role != victim && (was.PID != is.PID || was.Restarts != is.Restarts) {
					t.Errorf("%s was killed, and %s has process %d after %d, restarts %d after %d", victim, role, is.PID, was.PID, is.Restarts, was.Restarts)
				}
			}
			if got, want := after.Role(victim).Restarts, before.Role(victim).Restarts+1; got != want {
				t.Errorf("%s was restarted %d times, want %d", victim, got, want)
			}
			if after.Node.ID != before.Node.ID || after.Cluster.ID != before.Cluster.ID {
				t.Errorf("%s was killed, and now it is node %s of cluster %s", victim, after.Node.ID, after.Cluster.ID)
			}
			// The whole way through works again: the store, and the cluster API.
			mustCount(t, http.MethodPost, after.Role("lighthouse"), n+2)
			c.MustReeve(t, "node", "list")
			before = c.Status(t)
		}
	}, underUmask("077")...)
}

// TestKilledCore kills reeved: its roles outlive it, and the next one goes on with them.
func TestKilledCore(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addLighthouse(t, c)
		before := c.AwaitUp(t, patience, withLighthouse...)
		mustCount(t, http.MethodPost, before.Role("lighthouse"), 1)
		running := handles(t, c, before)
		core := c.Core(t)
		c.Kill(t, core.PID)

		if soak.Enabled {
			// The roles live on for a while. The gate sees only that they are still there when the next core comes.
			if seen, ok := eventually.Try(t.Context(), 10*time.Second, 100*time.Millisecond, func() (bool, string) {
				for role, handle := range running {
					if handle.Ended() {
						return true, role
					}
				}
				return false, ""
			}); ok {
				t.Fatalf("reeved was killed, and then %s ended", seen)
			}
		}
		mustCount(t, http.MethodPost, before.Role("lighthouse"), 2)

		c.MustReeve(t, "dev", "up", "--detach")
		after := c.AwaitUp(t, patience, withLighthouse...)
		if after.Node.ID != before.Node.ID || after.Cluster.ID != before.Cluster.ID {
			t.Errorf("after reeved was killed it is node %s of cluster %s, want %s of %s", after.Node.ID, after.Cluster.ID, before.Node.ID, before.Cluster.ID)
		}
		for role, handle := range running {
			if handle.Ended() || after.Role(role).PID != handle.PID {
				t.Errorf("%s of the former core, %s, is process %d of the new one", role, handle.Process, after.Role(role).PID)
			}
		}
		onlyThese(t, c, after)
		mustCount(t, http.MethodGet, after.Role("lighthouse"), 2)
	})
}

// handles holds the processes of all roles.
func handles(t *testing.T, c *devcluster.Cluster, status devcluster.Status) map[string]*procfs.Handle {
	t.Helper()
	held := make(map[string]*procfs.Handle)
	for role, pid := range status.PIDs() {
		for _, process := range c.Processes(t) {
			if process.PID != pid {
				continue
			}
			handle, err := procfs.Hold(process)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = handle.Close() })
			held[role] = handle
		}
	}
	if len(held) != len(status.Roles) {
		t.Fatalf("%d processes for the roles of %s", len(held), status)
	}
	return held
}

// onlyThese fails the test for every process of the cluster that is neither reeved nor one that the status names.
func onlyThese(t *testing.T, c *devcluster.Cluster, status devcluster.Status) {
	t.Helper()
	known := slices.Collect(maps.Values(status.PIDs()))
	known = append(known, c.Core(t).PID)
	for _, process := range c.Processes(t) {
		if !slices.Contains(known, process.PID) {
			t.Errorf("a stray process: %s; the status is %s", process, status)
		}
	}
}

// TestKilledEverything kills reeved and all roles at once.
func TestKilledEverything(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		before := addLighthouse(t, c)
		mustCount(t, http.MethodPost, before.Role("lighthouse"), 1)
		c.KillAll(t)
		c.NoProcesses(t)
		c.MustReeve(t, "dev", "up", "--detach")
		after := c.AwaitUp(t, patience, withLighthouse...)
		if after.Node.ID != before.Node.ID || after.Cluster.ID != before.Cluster.ID {
			t.Errorf("after everything was killed it is node %s of cluster %s, want %s of %s", after.Node.ID, after.Cluster.ID, before.Node.ID, before.Cluster.ID)
		}
		onlyThese(t, c, after)
		mustCount(t, http.MethodGet, after.Role("lighthouse"), 1)
	})
}

// TestKilledWithRolesLeft kills reeved for good: what it has left can still be stopped.
func TestKilledWithRolesLeft(t *testing.T) {
	t.Parallel()
	for name, stop := range inOrder(map[string]func(*testing.T, *devcluster.Cluster) devcluster.Result{
		"reeve dev down": func(t *testing.T, c *devcluster.Cluster) devcluster.Result { return c.Reeve(t, "dev", "down") },
		"reeved reap": func(t *testing.T, c *devcluster.Cluster) devcluster.Result {
			return c.Run(t, suite.programs.Reeved(), "reap", "--dir", c.Directory)
		},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
				c.Up(t)
				c.Kill(t, c.Core(t).PID)
				if left := len(c.Processes(t)); left != len(devcluster.DefaultRoles) {
					t.Fatalf("%d processes are left, want those of %v", left, devcluster.DefaultRoles)
				}
				if result := stop(t, c); result.Code != 0 {
					t.Error(result)
				}
				c.NoProcesses(t)
			})
		})
	}
}

// TestMachineRestarted takes away what does not outlive the machine's run time: the processes and the run directory. Then the node comes up at another place, since
// somebody has moved its directory, and a copy of that is refused.
func TestMachineRestarted(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		before := c.Up(t)
		c.KillAll(t)
		run, err := filepath.EvalSymlinks(c.Path("run"))
		if err != nil {
			t.Fatal(err)
		}
		devcluster.Unmount(t, run)
		if err := os.RemoveAll(run); err != nil {
			t.Fatal(err)
		}
		// There is nothing to stop, which is no error.
		c.MustReeve(t, "dev", "down")
		former := c.Directory
		c.Directory += "-moved"
		if err := os.Rename(former, c.Directory); err != nil {
			t.Fatal(err)
		}
		after := c.Up(t)
		if hosts, err := os.ReadFile(c.Path("hosts")); err != nil || !strings.Contains(string(hosts), after.Node.ID) {
			t.Errorf("the hosts file at the new place: %q, %v", hosts, err)
		}
		if output, err := exec.Command("cp", "-a", c.Directory, former).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if copied := c.StartAlone(t, "dev", "down", "--dir", former).Wait(t, patience); copied.Code != 4 || !strings.Contains(copied.Stderr, former+" is a copy of the dev directory "+c.Directory) {
			t.Errorf("of a copy: %s", copied)
		}
		// A cleaner empties the run directory of a node that runs. What is a mount stays.
		pids := c.AwaitUp(t, patience, devcluster.DefaultRoles...).PIDs()
		if run, err = filepath.EvalSymlinks(c.Path("run")); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(run)
		after = c.Await(t, patience, "the node answers, and has started all roles again", func(s devcluster.Status) bool {
			now := s.PIDs()
			for role, pid := range pids {
				if now[role] == pid {
					return false
				}
			}
			return s.Up(devcluster.DefaultRoles...)
		})
		if after.Node.ID != before.Node.ID || after.Cluster.ID != before.Cluster.ID {
			t.Errorf("it is node %s of cluster %s, want %s of %s", after.Node.ID, after.Cluster.ID, before.Node.ID, before.Cluster.ID)
		}
	})
}

// TestSplitAndHome stops the curator without ending it, so that the cluster is out of reach, and lets it go on.
func TestSplitAndHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.WriteParameters(t, func(p *nodev1.Parameters) {
		// A curator that hangs for as long as this test has it hang is left alone.
		p.Supervision = &nodev1.Supervision{Liveness: &nodev1.Liveness{Timeout: durationpb.New(time.Hour)}}
	})
	c.Up(t)
	addLighthouse(t, c)
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "probe", nil))
	c.MustReeve(t, "node", "role", "add", c.Status(t).Node.ID, "probe")
	before := c.AwaitUp(t, patience, append([]string{"probe"}, withLighthouse...)...)
	dial := func(want string) {
		t.Helper()
		eventually.True(t, patience, "to open the store gives "+want, func() (bool, string) {
			var got string
			ask(t, http.MethodGet, before.Role("probe").URL()+"/dial", &got)
			return got == want, got
		})
	}
	dial("open")
	curator := before.Role("curator").PID
	c.Signal(t, curator, unix.SIGSTOP)
	split := c.Await(t, patience, "the node Split, with a reason", func(s devcluster.Status) bool {
		return s.Membership.State == "Split" && s.Membership.Reason != ""
	})
	if role := split.Role("lighthouse"); role.PID != before.Role("lighthouse").PID {
		t.Errorf("a role that is only told of a split has ended: %+v", role)
	}
	dial("ErrNotMember")
	eventually.True(t, patience, "a role that does not ask for it has the store no more while the node is Split", func() (bool, string) {
		got, err := count(http.MethodPost, split.Role("lighthouse"))
		return err != nil, fmt.Sprint(got)
	})
	if _, err := count(http.MethodPost, split.Role("lighthouse")); err == nil {
		t.Error("while the node is Split a role that does not ask for it has the store again")
	}
	c.Signal(t, curator, unix.SIGCONT)
	after := c.AwaitUp(t, patience, withLighthouse...)
	for role, pid := range before.PIDs() {
		if after.Role(role).PID != pid {
			t.Errorf("%s has process %d after %d", role, after.Role(role).PID, pid)
		}
	}
	eventually.True(t, patience, "the lighthouse counts again", func() (bool, string) {
		got, err := count(http.MethodPost, after.Role("lighthouse"))
		return err == nil && got > 0, fmt.Sprint(got, err)
	})

	dial("open")

	// A role that hangs does not keep the node from stopping.
	c.Signal(t, curator, unix.SIGSTOP)
	c.Down(t)
}

// TestStartedTwiceAtOnce starts the same new cluster twice at the same time: it is made once.
func TestStartedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one, two := c.Start(t, "dev", "up", "--detach"), c.Start(t, "dev", "up", "--detach")
	first, second := one.Wait(t, 2*patience), two.Wait(t, 2*patience)
	if first.Code != 0 && second.Code != 0 {
		t.Errorf("neither has brought it up: %s\n%s", first, second)
	}
	status := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	onlyThese(t, c, status)
	nodeList(t, c, status)
}

// TestUnreachableDirectory asks root for a dev directory that the roles' users cannot reach.
func TestUnreachableDirectory(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("needs root: only root's roles have users of their own")
	}
	c := devcluster.New(t, devcluster.Options{Programs: suite.programs, Base: suite.base, Unreachable: true})
	before := c.Up(t)
	if c.State() == c.Directory {
		t.Errorf("the dev directory is where no role can reach it: %s", c.State())
	}
	addLighthouse(t, c)
	mustCount(t, http.MethodPost, c.Status(t).Role("lighthouse"), 1)
	c.Down(t)
	if after := c.Up(t); after.Node.ID != before.Node.ID {
		t.Errorf("it is node %s, want %s", after.Node.ID, before.Node.ID)
	}
}
