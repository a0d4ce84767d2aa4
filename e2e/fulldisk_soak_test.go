//go:build soak

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// walPiece is the size in which etcd takes room for its log: one piece in use, and one ahead.
const walPiece = 64_000_000

// nodeSecret is what makes a node the node that it is; empty if there is no node yet.
func nodeSecret(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	configuration := loadSealed(t, c)
	if configuration == nil {
		return ""
	}
	return configuration.ClusterID + " " + string(configuration.NodeKey)
}

// builtinSize is how much room the built-in plugins take.
func builtinSize(t *testing.T) int64 {
	t.Helper()
	var size int64
	for _, role := range devcluster.DefaultRoles {
		info, err := os.Stat(filepath.Join(suite.programs.Plugins(), role))
		if err != nil {
			t.Fatal(err)
		}
		size += (info.Size() + page - 1) / page * page
	}
	return size
}

// TestBootstrapOnAFullDisk makes a cluster where the disk becomes full at each step that is persisted. Either it comes up, or it says what is wrong;
// with room it comes up as the same node, with nothing repaired by hand.
func TestBootstrapOnAFullDisk(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("cannot run: only root can mount a disk to fill")
	}
	plugins := builtinSize(t)
	stores := plugins + walPiece
	var rooms []int64
	// The owner's key, the hosts file, the parameters, the log, the sealed configuration, the volume's mark, the order of starts, events.
	for n := range int64(9) {
		rooms = append(rooms, n*page)
	}
	rooms = append(rooms,
		plugins/2,          // the executables
		plugins+8*page,     // numbers of instances, user IDs,
		plugins+11*page,    // the assignment, logs
		plugins+walPiece/2, // the store's log
		stores+12*page,     // the store's database,
		stores+21*page,     // user IDs of further roles, failures, certificates,
		stores+26*page,     // the node's progress, the assignment again, events
		stores+32*page,     // whatever comes last
		stores+walPiece/2,  // the store's log ahead
		stores+walPiece+walPiece/4+128*page*8, // enough
	)
	for _, room := range rooms {
		for name, user := range inOrder(map[string]*devcluster.User{"root": nil, "ordinary user": ordinary}) {
			if user != nil && !slices.Contains([]int64{2 * page, 5 * page, stores + 21*page}, room) {
				continue
			}
			t.Run(fmt.Sprintf("%d KiB %s", room>>10, name), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t)
				c := d.cluster(t, user)
				d.leave(t, room)
				first := upOnFullDisk(t, c)
				before := nodeSecret(t, c)
				if first.Code != 0 && !saysFull(c, first.Stdout+first.Stderr) {
					t.Errorf("it does not say what is wrong: %s", first)
				}
				if room == 0 && first.Code == 0 || room == rooms[len(rooms)-1] && first.Code != 0 {
					t.Errorf("the test does not test what it should: %s", first)
				}
				d.leave(t, enough)
				c.Up(t)
				status := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
				if after := nodeSecret(t, c); before != "" && after != before {
					t.Errorf("it is another node than before: %s", status)
				}
				onlyThese(t, c, status)
				nodeList(t, c, status)
				c.Down(t)
				if again := c.Up(t); again.Node.ID != status.Node.ID || again.Cluster.ID != status.Cluster.ID {
					t.Errorf("it is node %s of cluster %s, want %s of %s", again.Node.ID, again.Cluster.ID, status.Node.ID, status.Cluster.ID)
				}
				t.Logf("with %d KiB: exit code %d, node made: %v", room>>10, first.Code, before != "")
			})
		}
	}
}

// upOnFullDisk makes a cluster. It is given up some time after it has said that the disk is full, since it waits for room, and on a busy machine says so late.
func upOnFullDisk(t *testing.T, c *devcluster.Cluster) devcluster.Result {
	t.Helper()
	const given = 6 * time.Second
	began, up := time.Now(), c.Start(t, "dev", "up", "--detach", "--timeout", "1m")
	_, _ = eventually.Try(t.Context(), 2*patience, 100*time.Millisecond, func() (bool, string) {
		select {
		case <-up.Done():
			return true, ""
		default:
		}
		stdout, stderr := up.Output()
		return saysFull(c, stdout+stderr) && time.Since(began) > given, ""
	})
	select {
	case <-up.Done():
	default:
		_ = syscall.Kill(-up.PID, syscall.SIGINT) // it may be at its end by itself
	}
	return up.Wait(t, 2*patience)
}
