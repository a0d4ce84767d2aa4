package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// page is the smallest piece of room that a file takes.
	page = 4 << 10
	// databasePiece is the size in which etcd takes room for its database, of which the store has one piece ahead.
	databasePiece = 16 << 20
	// enough is room for everything that the tests do.
	enough = 600 << 20
)

// disk is a small disk of a test's own.
type disk struct{ path string }

var disks atomic.Int32

// newDisk mounts a disk. Only root can.
func newDisk(t *testing.T) disk {
	t.Helper()
	if !isRoot() {
		t.Skip("cannot run: only root can mount a disk to fill")
	}
	d := disk{filepath.Join(suite.base, fmt.Sprintf("m%d", disks.Add(1)))}
	if err := os.Mkdir(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("none", d.path, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", enough))
	if errors.Is(err, unix.EPERM) {
		t.Skip("cannot run: this root may not mount a disk to fill")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// leave leaves so much room on the disk, as its size allows: pages that others take meanwhile are gone too.
func (d disk) leave(t *testing.T, room int64) {
	t.Helper()
	for {
		var found unix.Statfs_t
		if err := unix.Statfs(d.path, &found); err != nil {
			t.Fatal(err)
		}
		used := int64(found.Blocks-found.Bfree) * found.Frsize
		// A size of 0 is no limit.
		err := unix.Mount("none", d.path, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", max(used+room, page)))
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINVAL) { // which says that more is in use by now
			t.Fatal(err)
		}
	}
}

func (d disk) cluster(t *testing.T, user *devcluster.User) *devcluster.Cluster {
	t.Helper()
	return devcluster.New(t, devcluster.Options{Programs: suite.programs, Base: d.path, User: user})
}

// saysFull says whether an output names the full disk and something of the cluster that is on it.
func saysFull(c *devcluster.Cluster, output string) bool {
	return strings.Contains(output, c.Directory) && (strings.Contains(output, "no space left on device") || strings.Contains(output, "disk is full"))
}

// awaitRoomTaken waits until the store has taken the room for its database.
func awaitRoomTaken(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	eventually.True(t, patience, "the database has its room, and a piece more", func() (bool, string) {
		var found unix.Stat_t
		if err := unix.Stat(c.Path("data", "roles", "consensus", "etcd", "member", "snap", "db"), &found); err != nil {
			t.Fatal(err)
		}
		return found.Blocks*512 >= found.Size+databasePiece, fmt.Sprintf("%d bytes of room, a size of %d", found.Blocks*512, found.Size)
	})
}

// TestNodeOnAFullDisk fills the disk of a node while a role writes to the store. The store goes on in the room that it took while there was some. When that is used
// up too, the node can be looked at, says what is wrong, and starts again what ends; with room it is as before, and no acknowledged write is lost.
func TestNodeOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	c := d.cluster(t, nil)
	c.WriteParameters(t, func(p *nodev1.Parameters) {
		// What is the node's fault is not to use up even a budget of one. That one is for a crash on the full disk that the core judges when there is room again.
		one := uint32(1)
		p.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: &one}}
		// The run directory is a tmpfs of the machine's own, and not on the disk.
		p.Directories.Run = filepath.Join(suite.base, "r-"+filepath.Base(d.path))
	})
	first := c.Up(t)
	awaitRoomTaken(t, c)
	snapshotsOnFullDisk(t, d, c)
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "writer", nil))
	c.MustReeve(t, "node", "role", "add", first.Node.ID, "writer")
	addTenant(t, c, "gorger", "user=gorger")
	roles := append([]string{"writer", "gorger"}, devcluster.DefaultRoles...)
	before := c.AwaitUp(t, patience, roles...)
	writing := startLoad(t, before.Role("writer").URL())
	writing.await(t, c, writesBetween)
	awaitRoomTaken(t, c)

	d.leave(t, 0)
	writing.await(t, c, writing.count()+writesBetween)
	if s := c.AwaitUp(t, patience, roles...); s.Role("consensus").PID != before.Role("consensus").PID {
		t.Errorf("a store with room of its own did not go on: %s", s)
	}
	// More than the piece by which the database grows, and the one ahead of it.
	for n := range 3 * databasePiece / 1_000_000 {
		if _, err := tell(t, before, "gorger", post, "put", "key", fmt.Sprint("key", n), "size", "1000000"); err != nil {
			t.Logf("refused after %d MB: %v", n, err)
			break
		}
	}
	full := func(s devcluster.Status, role string) bool {
		return strings.Contains(s.Role(role).Reason, "disk is full") && strings.Contains(s.Role(role).Reason, c.Path("data"))
	}
	// What becomes free meanwhile (a log that is put aside, say, or what the store had begun to write when it ended) is taken at once, or the store might find room.
	c.Await(t, patience, "the store says that the disk is full", func(s devcluster.Status) bool {
		d.leave(t, 0)
		return full(s, "consensus")
	})
	at := c.Await(t, patience, "the store is started again and again", func(s devcluster.Status) bool {
		d.leave(t, 0)
		return s.Role("consensus").Restarts >= 4 && full(s, "consensus")
	})
	if at.Role("consensus").State == "Failed" {
		t.Errorf("the store was given up: %s", at)
	}
	for _, role := range []string{"curator", "hostsfile", "writer", "gorger"} {
		if was, is := before.Role(role).PID, at.Role(role).PID; was != is {
			t.Errorf("%s ran as process %d, and runs as %d", role, was, is)
		}
	}
	if result := c.MustReeve(t, "events"); !strings.Contains(result.Stdout, "RoleCrashed") || !strings.Contains(result.Stdout, "disk is full") {
		t.Errorf("the events do not say what is wrong: %s", result)
	}
	c.MustReeve(t, "logs", first.Node.ID, "consensus")
	// A store that starts gives the room of its log away for a moment. What is added just then fits, and is removed when the store runs.
	added := false
	eventually.True(t, patience, "a plugin is refused with the reason", func() (bool, string) {
		d.leave(t, 0)
		result := c.Reeve(t, "plugin", "add", "--approve", suite.programs.Lighthouse())
		if added = added || result.Code == 0; added {
			added = c.Reeve(t, "plugin", "remove", "lighthouse").Code != 0
			return false, result.String()
		}
		return saysFull(c, result.Stderr), result.String()
	})
	if result := c.Reeve(t, "node", "role", "add", first.Node.ID, "lighthouse"); result.Code == 0 || result.Stderr == "" {
		t.Errorf("a role was added: %s", result)
	}
	// A role that ends is started again, without any room.
	c.Kill(t, at.Role("hostsfile").PID)
	c.Await(t, patience, "hostsfile runs again", func(s devcluster.Status) bool {
		role := s.Role("hostsfile")
		return role.PID != 0 && role.PID != at.Role("hostsfile").PID && role.State == "Ready"
	})

	d.leave(t, enough)
	after := c.AwaitUp(t, patience, roles...)
	if after.Node.ID != first.Node.ID || after.Cluster.ID != first.Cluster.ID {
		t.Errorf("it is node %s of cluster %s, want %s of %s", after.Node.ID, after.Cluster.ID, first.Node.ID, first.Cluster.ID)
	}
	writing.await(t, c, writing.count()+writesBetween)
	writing.stop()
	writing.done.Wait()
	t.Logf("%d writes acknowledged", writing.count())
	after = c.AwaitUp(t, patience, roles...)
	nothingLost(t, after, writing)
	onlyThese(t, c, after)
	c.MustReeve(t, "plugin", "add", "--approve", suite.programs.Lighthouse())
	// And once more from what is on disk alone.
	c.KillAll(t)
	c.Up(t)
	nothingLost(t, c.AwaitUp(t, patience, roles...), writing)
}

// snapshotsOnFullDisk fills the disk while there is a good scheduled snapshot. It stays, and the next one is refused with the reason, as is one that somebody asks for. Nothing is left of either.
func snapshotsOnFullDisk(t *testing.T, d disk, c *devcluster.Cluster) {
	t.Helper()
	newKey := func(name string) string {
		t.Helper()
		var made struct {
			Recipient string `json:"recipient"`
		}
		result := c.MustReeve(t, "recovery-key", "new", filepath.Join(c.Home, name), "-o", "json")
		if err := json.Unmarshal([]byte(result.Stdout), &made); err != nil {
			t.Fatal(err)
		}
		return made.Recipient
	}
	list := func() (names []string, problem string) {
		t.Helper()
		var listed struct {
			Problem   string `json:"problem"`
			Snapshots []struct {
				Name string `json:"name"`
			} `json:"snapshots"`
		}
		result := c.MustReeve(t, "store", "snapshot", "list", "-o", "json")
		if err := json.Unmarshal([]byte(result.Stdout), &listed); err != nil {
			t.Fatal(err)
		}
		for _, one := range listed.Snapshots {
			names = append(names, one.Name)
		}
		return names, listed.Problem
	}
	recipient, next := newKey("recovery.key"), newKey("next.key")
	c.MustReeve(t, "policy", "set", "recovery-recipient="+recipient)
	c.MustReeve(t, "policy", "set", "snapshots=interval=10m,keep=3")
	var good []string
	eventually.True(t, patience, "a scheduled snapshot is good", func() (bool, string) {
		var problem string
		good, problem = list()
		return len(good) == 1 && problem == "", fmt.Sprint(good, problem)
	})
	// What the rehearsal had is room, too, when it is gone.
	eventually.True(t, patience, "nothing is left of the rehearsal", func() (bool, string) {
		left, err := filepath.Glob(c.Path("data", "roles", "consensus", "rehearsal*"))
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})

	// The node gives its reserve free, which is enough for a snapshot that nobody rehearses.
	d.leave(t, 0)
	eventually.True(t, patience, "the node has given its reserve free", func() (bool, string) {
		_, err := os.Stat(c.Path("data", "reserve"))
		return errors.Is(err, os.ErrNotExist), fmt.Sprint(err)
	})
	d.leave(t, 0)
	const room = "its member cannot take one: there is too little room: its volume has "
	file := filepath.Join(c.Home, "snapshot")
	if result := c.Reeve(t, "store", "snapshot", file); result.Code != exitRefused || !strings.Contains(result.Stderr, room) || !strings.Contains(result.Stderr, "make room on it") {
		t.Errorf("a snapshot on a full disk is not refused with its reason: %s", result)
	}
	c.MustReeve(t, "policy", "set", "recovery-recipient="+next) // which makes the next one due at once
	c.Await(t, patience, "the role says that the scheduled snapshot has failed, and why", func(s devcluster.Status) bool {
		role := s.Role("curator")
		return role.State == "Degraded" && strings.Contains(role.Reason, room) && strings.HasSuffix(role.Reason, "make room on it, or ask another node's curator")
	})
	if names, problem := list(); !slices.Equal(names, good) || !strings.Contains(problem, room) {
		t.Errorf("there are %v, want %v; the problem is %q", names, good, problem)
	}
	for pattern, want := range map[string]int{
		file + "*": 0, c.Path("data", "roles", "curator", "snapshots", "*"): 1,
		c.Path("data", "roles", "consensus", "snapshot*"): 0, c.Path("data", "roles", "consensus", "rehearsal*"): 0,
	} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) != want {
			t.Errorf("of snapshots that were refused there is left: %v, %v", left, err)
		}
	}

	d.leave(t, enough)
	c.MustReeve(t, "policy", "set", "recovery-recipient="+recipient)
	c.MustReeve(t, "store", "snapshot", file)
	c.MustReeve(t, "store", "snapshot", "inspect", file, "--recovery-key", filepath.Join(c.Home, "recovery.key"))
	eventually.True(t, patience, "the last good scheduled snapshot counts again", func() (bool, string) {
		names, problem := list()
		return slices.Equal(names, good) && problem == "", fmt.Sprint(names, problem)
	})
	c.MustReeve(t, "policy", "set", "snapshots=off")
}
