package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// traces are what a worker leaves on a machine while it works: each kind is a list of what there is.
type traces map[string][]string

// traces looks at a node.
func (f *fleet) traces(t *testing.T, number int) traces {
	t.Helper()
	found := make(traces)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		// Other tests of the machine mount things too.
		if fields := strings.Fields(line); strings.Contains(fields[4], f.ids[number]) || strings.HasPrefix(fields[4], f.NodeDirectory(number)+"/") && strings.Contains(fields[4], worker) {
			found["mounts"] = append(found["mounts"], fields[4])
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/reeve-kubernetes/", "/sys/fs/cgroup/reeve-kubernetes/", "/run/reeve-kubernetes/"} {
		matches, err := filepath.Glob(pattern + f.ids[number])
		if err != nil {
			t.Fatal(err)
		}
		found["directories"] = append(found["directories"], matches...)
	}
	for line := range strings.Lines(f.ExecIn(t, number, "ip", "-o", "link")) {
		_, rest, _ := strings.Cut(line, ": ")
		name, _, _ := strings.Cut(rest, ": ")
		found["interfaces"] = append(found["interfaces"], name)
	}
	for line := range strings.Lines(f.ExecIn(t, number, "ip", "route")) {
		found["routes"] = append(found["routes"], strings.TrimSpace(line))
	}
	for line := range strings.Lines(f.ExecIn(t, number, "nft", "list", "tables")) {
		found["tables"] = append(found["tables"], strings.TrimSpace(line))
	}
	for _, name := range []string{"net.ipv4.ip_forward"} {
		found["sysctls"] = append(found["sysctls"], strings.TrimSpace(f.ExecIn(t, number, "cat", "/proc/sys/"+strings.ReplaceAll(name, ".", "/"))))
	}
	return found
}

// isClean: the node is as if it had never run a pod.
func (f *fleet) isClean(t *testing.T, number int) {
	t.Helper()
	now := f.traces(t, number)
	for kind, before := range f.clean[number] {
		if !slices.Equal(before, now[kind]) {
			t.Errorf("node %d: the %s are %q, and were %q", number, kind, now[kind], before)
		}
	}
	for kind, list := range now {
		if f.clean[number][kind] == nil && len(list) > 0 {
			t.Errorf("node %d: %s are left: %q", number, kind, list)
		}
	}
}

// leftAfterDown is what a node that is gone, with its network, has left on the machine.
func (f *fleet) leftAfterDown(t *testing.T, number int) (left []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.Contains(fields[4], f.ids[number]) {
			left = append(left, fields[4])
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/reeve-kubernetes/", "/sys/fs/cgroup/reeve-kubernetes/", "/run/reeve-kubernetes/"} {
		matches, _ := filepath.Glob(pattern + f.ids[number])
		left = append(left, matches...)
	}
	processes, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if slices.ContainsFunc(process.Arguments, func(argument string) bool { return strings.Contains(argument, "/run/reeve-kubernetes/"+f.ids[number]) }) {
			left = append(left, fmt.Sprint(process))
		}
	}
	return left
}
