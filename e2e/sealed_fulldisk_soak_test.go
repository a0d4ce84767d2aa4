//go:build soak

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestSealedBootstrapOnAFullDisk makes a node with an encrypted volume where the disk becomes full: it says so, and with room it goes on as the node that it was.
func TestSealedBootstrapOnAFullDisk(t *testing.T) {
	t.Parallel()
	// Of the files of system/, of the making of the image, and of what is written to it afterwards.
	for _, room := range []int64{0, page, 2 * page, 3 * page, 5 * page, 8 * page, 100 << 20, 270 << 20} {
		t.Run(fmt.Sprintf("%d KiB", room>>10), func(t *testing.T) {
			t.Parallel()
			d := newDisk(t)
			c := d.cluster(t, nil)
			c.WriteSealed(t, few)
			d.leave(t, room)
			how := fullOutcome(t, c, c.StartCore(t, ""))
			t.Logf("%d KiB: %s", room>>10, how)
			before, image := openFields(t, c), fileSystem(t, c)
			d.leave(t, enough)
			if how == "ended" {
				c.StartCore(t, "")
			}
			after := c.AwaitUp(t, patience, fewRoles...)
			if before.ClusterID != "" && (after.Cluster.ID != before.ClusterID || after.Node.ID != before.NodeID) {
				t.Errorf("begun as node %s of cluster %s, and it is %s of %s", before.NodeID, before.ClusterID, after.Node.ID, after.Cluster.ID)
			}
			if image != "" && fileSystem(t, c) != image {
				t.Error("the volume was formatted twice")
			}
			recovered(t, c, c.RecoveryKey())
		})
	}
}

// fullOutcome waits until a core on a disk with too little room has ended, or says what is wrong, or is up, and checks that it says it.
func fullOutcome(t *testing.T, c *devcluster.Cluster, core *devcluster.Running) string {
	t.Helper()
	said, how := "", ""
	full := func(text string) bool {
		return strings.Contains(text, "no space left") || strings.Contains(text, "disk is full") || strings.Contains(text, "too small")
	}
	eventually.True(t, patience, "it says that the disk is full", func() (bool, string) {
		select {
		case <-core.Done():
			how = "ended"
			return true, ""
		default:
		}
		result := c.Reeve(t, "status", "-o", "json")
		said = result.String()
		if status, err := devcluster.ParseStatus(result.Stdout); err == nil && result.Code == 0 {
			if status.Up(fewRoles...) {
				how = "up"
			} else if full(said) {
				how = "waits: " + status.Storage.Problem
			}
		}
		return how != "", said
	})
	return how
}

// TestSealedNodeOnAFullDisk fills the disk of a node: its keys cannot be rotated, it says so, and its volume opens as before.
func TestSealedNodeOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	c := d.cluster(t, nil)
	c.WriteSealed(t, few)
	first := startUp(t, c, fewRoles...)
	stopCore(t, c)
	for _, room := range []int64{0, page, 2 * page, 3 * page} {
		c.StartCore(t, "")
		awaitLocked(t, c)
		mustUnlock(t, c, fewRoles...)
		d.leave(t, room)
		result := c.Reeve(t, "node", "keys", "rotate", "--nuk", "--cuk")
		if result.Code != 0 && !strings.Contains(result.Stderr, "no space left on device") {
			t.Errorf("%d bytes of room: %s", room, result)
		}
		if room == 0 && result.Code == 0 {
			t.Errorf("the test does not test what it should: %s", result)
		}
		c.PowerOff(t)
		// Without any room it can be opened.
		c.StartCore(t, "")
		awaitLocked(t, c)
		if result := c.Unlock(t, c.RecoveryKey()); result.Code != 0 {
			t.Errorf("%d bytes of room: %s", room, result)
		}
		c.Await(t, patience, "the volume Open", func(s devcluster.Status) bool { return s.Storage.State == "Open" })
		// The file system in the image may have met the end of its disk, and takes no more then before it is mounted anew.
		d.leave(t, enough)
		stopCore(t, c)
		c.StartCore(t, "")
		awaitLocked(t, c)
		sameNode(t, first, mustUnlock(t, c, fewRoles...))
		c.MustReeve(t, "node", "keys", "rotate", "--nuk", "--cuk")
		stopCore(t, c)
	}
}
