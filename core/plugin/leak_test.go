package plugin_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Launches, failed or not, cost nothing that stays: goroutines are counted by TestMain; file descriptors, threads, mounts, control groups and processes
// here. It runs alone.
func TestLaunchesLeakNothing(t *testing.T) {
	node := newNode(t)
	broken := everything
	broken.Before = "exit"
	s := spec(node.add(t, broken), broken, plugintest.Configuration{})
	fail := func() {
		remit, err := node.launcher.Prepare(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); err == nil {
			t.Fatal("it was launched")
		}
	}
	succeed := func() {
		instance := node.launch(t, plugintest.Configuration{Do: "ready"})
		waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
		if err := instance.Stop(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	// The runtime makes some threads as they are needed, and keeps them.
	const warm, idleThreads = 3, 6
	for range warm {
		fail()
		succeed()
	}
	// On a busy machine it makes more of them, and other tests mount something, but not every time.
	for turn := 1; ; turn++ {
		before, threads, mounts := entriesOf(t, "/proc/self/fd"), entriesOf(t, "/proc/self/task"), node.mounts(t)
		for range launches {
			fail()
			succeed()
		}
		var leaks []string
		if after := entriesOf(t, "/proc/self/fd"); after > before {
			leaks = append(leaks, fmt.Sprintf("%d file descriptors before, %d after", before, after))
		}
		if after := entriesOf(t, "/proc/self/task"); after > threads+idleThreads {
			leaks = append(leaks, fmt.Sprintf("%d threads before, %d after", threads, after))
		}
		if after := node.mounts(t); after != mounts {
			leaks = append(leaks, fmt.Sprintf("%d mounts before, %d after", mounts, after))
		}
		if len(leaks) == 0 {
			break
		} else if turn == 3 {
			t.Fatal(strings.Join(leaks, "; "))
		}
	}
	node.nothingLeft(t)
}

// mounts counts the mounts that the core sees, but for those of other tests, which are made and go meanwhile.
func (n *testNode) mounts(t *testing.T) (count int) {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if at := strings.Fields(line)[4]; !ofOthers(at) || strings.HasPrefix(at, n.dir+"/") {
			count++
		}
	}
	return count
}

// ofOthers says whether tests mount something there: volumes, what roles of whole nodes write to, the names of network namespaces.
func ofOthers(at string) bool {
	return slices.ContainsFunc([]string{"/tmp/", "/var/tmp/", "/dev/shm/", "/run/"}, func(prefix string) bool { return strings.HasPrefix(at, prefix) })
}

func entriesOf(t *testing.T, directory string) int {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
