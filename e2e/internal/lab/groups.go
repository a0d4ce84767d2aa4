package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// groups are the control groups of a machine: one in each hierarchy that nodes use, below that of the test. The node of a machine makes its own below them, so that a
// clone does not get those of the other machine.
func (m *Machine) groups(t testing.TB) []string {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	unified := ""
	for line := range strings.Lines(string(content)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, path, ok := strings.Cut(rest, ":")
		used := slices.ContainsFunc(strings.Split(names, ","), func(name string) bool { return name == "cpu" || name == "memory" || name == "pids" })
		group := filepath.Join("/sys/fs/cgroup", names, path, fmt.Sprintf("lab-%d-%d", os.Getpid(), m.number))
		switch {
		case !ok:
		case names == "":
			unified = group
		case used:
			groups = append(groups, group)
		}
	}
	// Nodes use the tree of v2 where there is no other.
	if len(groups) == 0 && unified != "" {
		groups = append(groups, unified)
	}
	return groups
}

// enterGroups puts the first process into the groups of the machine. What of that a host does not allow, its nodes do without.
func (m *Machine) enterGroups(t testing.TB) {
	for _, group := range m.groups(t) {
		err := os.Mkdir(group, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(m.first.Process.Pid)), 0o600)
		}
		if err != nil {
			t.Logf("the machine %s has no control group of its own: %v", m.Name, err)
			_ = os.Remove(group)
		}
	}
}

// removeGroups removes the groups of a machine whose processes have ended, and those that its node has made below them.
func (m *Machine) removeGroups(t testing.TB) {
	for _, group := range m.groups(t) {
		var directories []string
		_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				directories = append(directories, path)
			}
			return nil
		})
		for _, directory := range slices.Backward(directories) {
			if err := os.Remove(directory); err != nil {
				t.Logf("a control group of the machine %s is left: %v", m.Name, err)
			}
		}
	}
}
