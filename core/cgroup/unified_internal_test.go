package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/proto/mountinfo"
)

// fake is a tree of files that stands for cgroup v2 with controllers, which the machines that run these tests mostly do not have: it shows what is
// written where, and not what the kernel makes of it. Hybrid and v1 are tested for real.
func fake(t *testing.T, directory string) {
	t.Helper()
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cgroup.controllers": "cpuset cpu io memory pids", "cgroup.subtree_control": "", "cgroup.type": "domain", "cgroup.procs": "", "cgroup.kill": "",
		"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "memory.events": "low 0\noom 2\noom_kill 3\n", "pids.max": "max", "cpu.weight": "100",
	} {
		path := filepath.Join(directory, name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func content(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestUnified(t *testing.T) {
	root := t.TempDir()
	fake(t, root)
	if err := os.Remove(filepath.Join(root, "cgroup.type")); err != nil { // as the root of all
		t.Fatal(err)
	}
	makeFake := func(directory string) error { fake(t, directory); return nil }
	found := hierarchies("0::/\n", parse(t, "30 1 0:26 / "+root+" rw - cgroup2 cgroup2 rw\n"))
	tree, err := open("node", found, makeFake)
	if err != nil || len(tree.Missing()) > 0 {
		t.Fatalf("%v %v", err, tree.Missing())
	}
	group, err := tree.Make("role.1", Limits{MemoryBytes: 1 << 20, Processes: 7, CPUWeight: 50})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(root, "node", "role.1")
	if paths := group.Paths(); !slices.Equal(paths, []string{at}) {
		t.Errorf("paths %v", paths)
	}
	for name, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "7", "cpu.weight": "50"} {
		// The fake keeps what was there after what is written over it.
		if got := content(t, at, name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := content(t, root, "node", "cgroup.subtree_control"); !strings.Contains(got, "+pids") {
		t.Errorf("passed on: %q", got)
	}
	if count, err := group.OutOfMemory(); count != 3 || err != nil {
		t.Errorf("out of memory: %d %v", count, err)
	}
	if err := group.Kill(); err != nil || content(t, at, "cgroup.kill") != "1" {
		t.Errorf("kill: %v", err)
	}
}

// TestNotDelegated: a core in a group of its own that nobody gave it makes no groups, and says what helps.
func TestNotDelegated(t *testing.T) {
	root := t.TempDir()
	fake(t, filepath.Join(root, "system.slice", "reeved.service"))
	found := hierarchies("0::/system.slice/reeved.service\n", parse(t, "30 1 0:26 / "+root+" rw - cgroup2 cgroup2 rw\n"))
	tree, err := open("node", found, func(string) error { t.Error("makes a group"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	missing := tree.Missing()
	if len(missing) != 3 || !strings.Contains(missing[0].GetReason(), "Delegate") {
		t.Errorf("missing: %v", missing)
	}
}

func parse(t *testing.T, mounts string) []mountinfo.Mount {
	t.Helper()
	parsed, err := mountinfo.Parse([]byte(mounts))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestHierarchies(t *testing.T) {
	const groups = "9:name=systemd:/x\n8:pids:/a\n4:memory:/docker/abc/own\n2:cpu,cpuacct:/\n0::/u\nnonsense\n"
	const mounts = "31 1 0:1 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n" +
		"32 1 0:2 /docker/abc /sys/fs/cgroup/mem\\040ory rw shared:3 - cgroup cgroup rw,memory\n" +
		"33 1 0:3 /other /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"34 1 0:3 / /sys/fs/cgroup/cpu2 rw - cgroup cgroup rw,cpuacct,cpu\n" +
		"35 1 0:4 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
		"36 1 0:5 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	var got []string
	for _, h := range hierarchies(groups, parse(t, mounts)) {
		got = append(got, h.directory+" "+strings.Join(h.controllers, ","))
	}
	want := []string{"/sys/fs/cgroup/pids/a pids", "/sys/fs/cgroup/mem ory/own memory", "/sys/fs/cgroup/cpu2 cpu"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// The tree of v2 is of use where there is no other.
	if alone := hierarchies("0::/u\n", parse(t, "36 1 0:5 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")); len(alone) != 1 || alone[0].directory != "/sys/fs/cgroup/unified/u" {
		t.Errorf("v2 alone: %v", alone)
	}
}
