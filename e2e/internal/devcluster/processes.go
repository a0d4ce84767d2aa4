package devcluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// Instance is the variable by which every process of an instance says whose it is.
const Instance = "REEVE_INSTANCE"

// endTimeout is how long the kernel may take to end a process that was killed.
const endTimeout = time.Minute

// Processes returns all processes of the cluster's node: reeved, its roles and what they have started. Those of commands are not among them.
func (c *Cluster) Processes(t testing.TB) []procfs.Process {
	t.Helper()
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	state, uids := c.State()+"/", c.uidRanges()
	var found []procfs.Process
	for _, p := range all {
		if !p.Ended() && (c.isCore(p) || c.isInstance(p, state) || slices.ContainsFunc(uids, func(r uidRange) bool { return r.holds(p.UID) })) {
			found = append(found, p)
		}
	}
	return found
}

func (c *Cluster) isCore(p procfs.Process) bool {
	state := c.State() + "/"
	return filepath.Base(p.Executable) == "reeved" && slices.ContainsFunc(p.Arguments, func(argument string) bool {
		return strings.HasPrefix(argument, state)
	})
}

func (c *Cluster) isInstance(p procfs.Process, state string) bool {
	// Where the core is an ordinary user, what it executes is a sealed copy in memory with the name of the stored file.
	if strings.HasPrefix(strings.TrimPrefix(p.Executable, "/memfd:"), state) {
		c.learn(p)
		return true
	}
	node, _, ok := strings.Cut(p.Variable(Instance), "/")
	if !ok {
		return false
	}
	c.learnOfVolume()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodeIDs[node]
}

// learnOfVolume keeps the IDs of the nodes as their volumes have them: an ordinary user's roles run from memory, and have no path that tells whose they are.
func (c *Cluster) learnOfVolume() {
	for _, node := range c.NodeDirectories() {
		content, err := os.ReadFile(filepath.Join(node, "data", "volume.json"))
		var volume struct {
			NodeID string `json:"node_id"`
		}
		if err != nil || json.Unmarshal(content, &volume) != nil || volume.NodeID == "" {
			continue
		}
		c.mu.Lock()
		c.nodeIDs[volume.NodeID] = true
		c.mu.Unlock()
	}
}

// learn keeps the ID of the node, so that processes are found that run something else than a plugin.
func (c *Cluster) learn(p procfs.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node, _, ok := strings.Cut(p.Variable(Instance), "/"); ok && node != "" {
		c.nodeIDs[node] = true
	}
}

// uidRange is the user IDs that are reserved for the node, and for nothing else on the host.
type uidRange struct{ start uint32 }

func (r uidRange) holds(uid uint32) bool { return r.start != 0 && uid >= r.start && uid-r.start < 1024 }

// uidRanges returns the ranges of all nodes, that of the first node first.
func (c *Cluster) uidRanges() []uidRange {
	content, err := os.ReadFile("/var/lib/reeve/uid-ranges")
	if err != nil {
		return nil // there is none but for root
	}
	var file struct {
		Ranges []struct {
			Start uint32 `json:"start"`
			Owner string `json:"owner"`
		} `json:"ranges"`
	}
	if json.Unmarshal(content, &file) != nil {
		return nil
	}
	state := c.State() + "/"
	var ranges []uidRange
	for _, r := range file.Ranges {
		switch {
		case strings.HasPrefix(r.Owner, state+nodesDirectory):
			ranges = append(ranges, uidRange{r.Start})
		case strings.HasPrefix(r.Owner, state):
			ranges = slices.Insert(ranges, 0, uidRange{r.Start})
		}
	}
	return ranges
}

// UIDs returns the first of the user IDs that are reserved for the first node; 0 if none are.
func (c *Cluster) UIDs() uint32 {
	ranges := c.uidRanges()
	if len(ranges) == 0 {
		return 0
	}
	return ranges[0].start
}

// Core returns the process of reeved, as the kernel names who listens on the node's socket.
func (c *Cluster) Core(t testing.TB) procfs.Process {
	t.Helper()
	run, err := filepath.EvalSymlinks(c.Path("run"))
	if err != nil {
		t.Fatal(err)
	}
	core, err := procfs.Listener(filepath.Join(run, "node.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if !c.isCore(core) {
		t.Fatalf("the node's socket is listened to by %s, which is not this cluster's reeved", core)
	}
	return core
}

// FindCore returns the process of reeved also before it listens, if there is one.
func (c *Cluster) FindCore(t testing.TB) (procfs.Process, bool) {
	t.Helper()
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if c.isCore(p) && !p.Ended() {
			return p, true
		}
	}
	return procfs.Process{}, false
}

// Signal sends a signal to a process of the cluster.
func (c *Cluster) Signal(t testing.TB, pid int, signal unix.Signal) {
	t.Helper()
	for _, p := range c.Processes(t) {
		if p.PID != pid {
			continue
		}
		handle, err := procfs.Hold(p)
		if err != nil {
			t.Fatal(err)
		}
		defer handle.Close()
		if err := handle.Signal(signal); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("process %d is not one of this cluster's", pid)
}

// Kill kills a process of the cluster and returns when it has ended.
func (c *Cluster) Kill(t testing.TB, pid int) {
	t.Helper()
	for _, p := range c.Processes(t) {
		if p.PID == pid {
			c.kill(t, p)
			return
		}
	}
	t.Fatalf("process %d is not one of this cluster's", pid)
}

// KillProcess kills a process of the cluster, as Processes returned it, and returns when it has ended. One that has ended already is no error.
func (c *Cluster) KillProcess(t testing.TB, p procfs.Process) {
	t.Helper()
	c.kill(t, p)
}

// KillAll kills every process of the cluster, reeved first.
func (c *Cluster) KillAll(t testing.TB) {
	t.Helper()
	for processes := c.Processes(t); len(processes) > 0; processes = c.Processes(t) {
		slices.SortStableFunc(processes, func(a, b procfs.Process) int {
			switch {
			case c.isCore(a) == c.isCore(b):
				return 0
			case c.isCore(a):
				return -1
			}
			return 1
		})
		for _, p := range processes {
			c.kill(t, p)
		}
	}
}

func (c *Cluster) kill(t testing.TB, p procfs.Process) {
	t.Helper()
	handle, err := procfs.Hold(p)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := handle.Signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := handle.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// NoProcesses fails the test if a process of the cluster is left.
func (c *Cluster) NoProcesses(t testing.TB) {
	t.Helper()
	if left := c.Processes(t); len(left) > 0 {
		t.Fatalf("%d processes are left: %v", len(left), left)
	}
}

// AwaitNoProcesses waits until no process of the cluster is left.
func (c *Cluster) AwaitNoProcesses(t testing.TB, timeout time.Duration) {
	t.Helper()
	eventually.True(t, timeout, "no process of the cluster left", func() (bool, string) {
		left := c.Processes(t)
		var text strings.Builder
		for _, p := range left {
			text.WriteString("\n\t" + p.String())
		}
		return len(left) == 0, text.String()
	})
}
