//go:build soak

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// inPhase says that the node has come to a phase on its way to the cluster.
func inPhase(want string) func(*testing.T, *devcluster.Cluster) bool {
	return func(t *testing.T, c *devcluster.Cluster) bool {
		s, ok := readSealed(t, c)
		return ok && s.Phase == want
	}
}

// TestKilledWhileBootstrapping kills the node at every step on the way to its cluster. The next start finishes what was begun, with the same
// cluster ID.
func TestKilledWhileBootstrapping(t *testing.T) {
	t.Parallel()
	etcdBegun := func(t *testing.T, c *devcluster.Cluster) bool {
		_, err := os.Stat(c.Path("data", "roles", "consensus", "etcd"))
		return err == nil
	}
	for _, moment := range []struct {
		name string
		// reached says that it is time to kill.
		reached func(*testing.T, *devcluster.Cluster) bool
		// phase is what must be on disk after the kill; otherwise the kill came at another moment, and is tried again.
		phase string
	}{
		{"before the store is made", inPhase("forming"), "forming"},
		{"while the store is made", etcdBegun, "forming"},
		{"between the store and the transaction", inPhase("formed"), "formed"},
		{"after the transaction", inPhase("member"), "member"},
	} {
		for _, all := range []bool{false, true} {
			name := moment.name + ", reeved"
			if all {
				name = moment.name + ", everything"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := killAt(t, moment.reached, moment.phase, all)
				finishes(t, c)
			})
		}
	}
}

// killAt starts a new cluster and kills it at a moment, again with another cluster until the moment was met.
func killAt(t *testing.T, reached func(*testing.T, *devcluster.Cluster) bool, phase string, all bool) *devcluster.Cluster {
	t.Helper()
	const attempts = 10
	for range attempts {
		c := newCluster(t)
		up := c.Start(t, "dev", "up", "--detach")
		var core procfs.Process
		_, ok := eventually.Try(t.Context(), patience, time.Millisecond, func() (bool, string) {
			if core.PID == 0 {
				core, _ = c.FindCore(t)
				return false, ""
			}
			return reached(t, c), ""
		})
		if !ok {
			t.Fatal("the moment never came")
		}
		// At once, with nothing in between.
		if err := unix.Kill(core.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if all {
			c.KillAll(t)
		}
		awaitEnd(t, core)
		result := up.Wait(t, patience)
		if s, ok := readSealed(t, c); ok && s.Phase == phase {
			// Of a kill that came too late it may say so: the node was up before.
			if result.Code == 0 && phase != "member" {
				t.Errorf("reeved was killed, and dev up says that all is well: %s", result)
			}
			return c
		}
		c.KillAll(t)
	}
	t.Fatalf("the phase %s was not met in %d attempts", phase, attempts)
	return nil
}

// TestStoreDeletedBeforeTransaction does it to a node that has a store and nothing in it yet: that is no reason either.
func TestStoreDeletedBeforeTransaction(t *testing.T) {
	t.Parallel()
	c := killAt(t, inPhase("formed"), "formed", true)
	store := c.Path("data", "roles", "consensus", "etcd")
	storeDeleted(t, c, store, store)
}

// TestBootstrapKilledAtRandom kills a node that makes its cluster, at moments that nobody chose: the next start goes on, and there is one cluster.
func TestBootstrapKilledAtRandom(t *testing.T) {
	t.Parallel()
	const rounds = 12
	random := seed(t)
	for round := range rounds {
		// A bootstrap takes about a second, and several times that on a machine that is busy with other tests.
		delay := time.Duration(random.Int64N(int64(2500 * time.Millisecond)))
		everything := random.IntN(2) == 0
		t.Run(fmt.Sprintf("%d after %s everything=%v", round, delay.Round(time.Millisecond), everything), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.WriteParameters(t, patientParameters)
			up := c.Start(t, "dev", "up", "--detach")
			// The moment is the point: it is not waited for anything.
			time.Sleep(delay)
			if everything {
				c.KillAll(t)
			} else if core, ok := c.FindCore(t); ok {
				c.KillProcess(t, core)
			}
			up.Wait(t, 2*patience)
			c.Up(t)
			status := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
			onlyThese(t, c, status)
			nodeList(t, c, status)
			c.Down(t)
			again := c.Up(t)
			if again.Node.ID != status.Node.ID || again.Cluster.ID != status.Cluster.ID {
				t.Errorf("it is node %s of cluster %s, want %s of %s", again.Node.ID, again.Cluster.ID, status.Node.ID, status.Cluster.ID)
			}
		})
	}
}
