package cgroup

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
)

// TestNestedGroups: a privileged role may make groups below its own. They and their processes go with it, by the kernel's means and without them.
func TestNestedGroups(t *testing.T) {
	tree, err := Open("reeve-test-" + strings.ToLower(rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Missing()) > 0 {
		t.Skipf("this machine and user cannot do: %v", tree.Missing())
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, which := range inorder.Of(map[string]func(base) bool{
		"as it is": func(base) bool { return true },
		"v1 alone": func(b base) bool { return !b.unified },
	}) {
		t.Run(name, func(t *testing.T) {
			some := &Tree{make: tree.make, lacks: tree.lacks}
			for _, b := range tree.bases {
				if which(b) {
					some.bases = append(some.bases, b)
				}
			}
			if len(some.bases) == 0 {
				t.Skip("this machine has no such hierarchies")
			}
			group, err := some.Make("role.1", Limits{})
			if err != nil {
				t.Fatal(err)
			}
			child := exec.Command("sleep", "1000")
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = child.Process.Kill() })
			for _, path := range group.Paths() {
				deep := filepath.Join(path, "own", "deep")
				if err := os.MkdirAll(deep, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := write(filepath.Join(deep, "cgroup.procs"), strconv.Itoa(child.Process.Pid)); err != nil {
					t.Fatal(err)
				}
			}
			if pids, err := group.Processes(); err != nil || !slices.Equal(pids, []int{child.Process.Pid}) {
				t.Errorf("processes %v %v", pids, err)
			}
			ended := make(chan error, 1)
			go func() { ended <- child.Wait() }()
			if err := some.Sweep(func(string) bool { return false }); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Error("it was not killed")
			}
			for _, path := range group.Paths() {
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("%s is still there (%v)", path, err)
				}
			}
		})
	}
}

// TestKillsNobodyElse: a process that has left the group since its number was read is not killed.
func TestKillsNobodyElse(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	readings := [][]int{{child.Process.Pid}, {}}
	killed := make(map[int]bool)
	more, err := (&Group{name: "role.1"}).killListed(func() ([]int, error) {
		pids := readings[0]
		readings = readings[1:]
		return pids, nil
	}, killed)
	if err != nil || !more || len(killed) > 0 {
		t.Errorf("more %v, killed %v, %v", more, killed, err)
	}
	var status unix.WaitStatus
	if pid, err := unix.Wait4(child.Process.Pid, &status, unix.WNOHANG, nil); err != nil || pid != 0 {
		t.Errorf("it has ended: %v %v", status, err)
	}
}
