package machine_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
)

// cgroups are those of a node of this test alone, of which nothing is left after it.
func cgroups(t *testing.T) *machine.Cgroups {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: needs root, since control groups are made")
	}
	c, err := machine.OpenCgroups("reeve-test-" + strings.ToLower(rand.Text()))
	if err != nil {
		t.Skipf("not run: %v", err)
	}
	if err := c.Make(); errors.Is(err, fs.ErrPermission) {
		t.Skipf("not run: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(c.Kill(ctx), c.Remove(ctx)); err != nil {
			t.Error(err)
		}
		for _, directory := range directories(t, c) {
			if _, err := os.Stat(directory); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left: %v", directory, err)
			}
		}
	})
	return c
}

// directories are the group in every hierarchy.
func directories(t *testing.T, c *machine.Cgroups) []string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, mount := range mounts {
		all = append(all, filepath.Join(mount.Mountpoint, c.Path()))
	}
	return all
}

// enter starts a process, in a group below the node's in every hierarchy, and waits for its first line.
func enter(t *testing.T, c *machine.Cgroups, group, script string) *exec.Cmd {
	t.Helper()
	command := exec.Command("sh", "-c", "read go; "+script)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for _, directory := range directories(t, c) {
		directory = filepath.Join(directory, group)
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(filepath.Dir(directory), name)); err == nil {
				if err := os.WriteFile(filepath.Join(directory, name), value, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.WriteFile(filepath.Join(directory, "cgroup.procs"), []byte(strconv.Itoa(command.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := input.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return command
}

// TestCgroups: the group is there in every hierarchy, processes can be in it, and all are found and killed: those that are frozen, and those that make others.
func TestCgroups(t *testing.T) {
	c := cgroups(t)
	for range 2 {
		if err := c.Make(); err != nil { // again
			t.Fatal(err)
		}
	}
	all := directories(t, c)
	for _, directory := range all {
		if _, err := os.Stat(filepath.Join(directory, "cgroup.procs")); err != nil {
			t.Error(err)
		}
		// In v2 the kubelet wants all controllers that there are, at the root of its own.
		available, err := os.ReadFile(filepath.Join(directory, "../../cgroup.controllers"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		given, errGiven := os.ReadFile(filepath.Join(directory, "cgroup.subtree_control"))
		if err := errors.Join(err, errGiven); err != nil {
			t.Error(err)
		}
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "hugetlb", "io"} {
			if has := strings.Fields(string(available)); slices.Contains(has, controller) && !slices.Contains(strings.Fields(string(given)), controller) {
				t.Errorf("%s gives %s to those below it, and not %s", directory, given, controller)
			}
		}
	}
	processes := []*exec.Cmd{
		enter(t, c, "kubepods", "echo; sleep 1000"),
		enter(t, c, "kubepods/frozen", "echo; sleep 1000"),
		enter(t, c, "kubepods/forks", "echo; while :; do sleep 1000 & sleep 0.01; done"),
		enter(t, c, "deaf", "trap '' TERM; echo; sleep 1000"),
	}
	for _, directory := range all {
		for file, value := range map[string]string{"freezer.state": "FROZEN", "cgroup.freeze": "1"} {
			if path := filepath.Join(directory, "kubepods/frozen", file); fileExists(path) {
				if err := os.WriteFile(path, []byte(value), 0); err != nil {
					t.Error(err)
				}
			}
		}
	}
	found, err := c.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if !slices.Contains(found, process.Process.Pid) {
			t.Errorf("%v: %d is not among them", found, process.Process.Pid)
		}
	}
	ended := make(chan error, len(processes))
	for _, process := range processes {
		go func() { ended <- process.Wait() }()
	}
	// It cannot go while there are processes in it.
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Remove(hurried); err == nil || !strings.Contains(err.Error(), strconv.Itoa(processes[0].Process.Pid)) {
		t.Errorf("it was removed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	for range processes {
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Errorf("it ended by %v", err)
		}
	}
	if found, err := c.Processes(); err != nil || len(found) > 0 {
		t.Errorf("there are left %v, %v", found, err)
	}
	for range 2 { // of nothing too
		if err := errors.Join(c.Kill(ctx), c.Remove(ctx)); err != nil {
			t.Error(err)
		}
	}
}

// TestCgroupsOfTwoNodes: the group above both goes with the last.
func TestCgroupsOfTwoNodes(t *testing.T) {
	first, second := cgroups(t), (*machine.Cgroups)(nil)
	second, err := machine.OpenCgroups("reeve-test-" + strings.ToLower(rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Make(); err != nil {
		t.Fatal(err)
	}
	if err := second.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	for _, directory := range directories(t, first) {
		if !fileExists(directory) {
			t.Errorf("%s is gone", directory)
		}
	}
}

// TestKillOneself: a process that is in the group is not killed by itself.
func TestKillOneself(t *testing.T) {
	if node := os.Getenv("KILL_ONESELF"); node != "" {
		c, err := machine.OpenCgroups(node)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Kill(t.Context()); err == nil || !strings.Contains(err.Error(), "this process is in the control group") {
			t.Errorf("it says %v", err)
		}
		return
	}
	c := cgroups(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := enter(t, c, "role", fmt.Sprintf("echo; KILL_ONESELF=%s exec %s -test.run=TestKillOneself", filepath.Base(c.Path()), self))
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

func TestCgroupsRefuse(t *testing.T) {
	for _, node := range []string{"", "..", "a/b", ".hidden", "cgroup.procs", "a\nb"} {
		if _, err := machine.OpenCgroups(node); err == nil {
			t.Errorf("a group named %q", node)
		}
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
