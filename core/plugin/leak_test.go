package plugin_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Launches, failed or not, cost nothing that stays: goroutines are counted by TestMain; file descriptors, threads, mounts, control groups and processes
// here. It runs alone.
func TestLaunchesLeakNothing(t *testing.T) {
	node := newNode(t)
	broken := everything
	broken.Before = "exit"
	s := spec(node.add(t, broken), broken, plugintest.Configuration{})
	// A record that cannot be kept for the next core, since a string of it is not UTF-8.
	unkept := spec(s.Plugin.GetDigests()[store.Platform], broken, plugintest.Configuration{})
	unkept.Plugin.Version = "\xff"
	fail := func() {
		for _, s := range []plugin.Spec{s, unkept} {
			remit, err := node.launcher.Prepare(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); err == nil {
				t.Fatal("it was launched")
			}
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
	before, mounts := entriesOf(t, "/proc/self/fd"), node.mounts(t)
	// On a busy machine it makes more of them, but not every time.
	for turn := 1; ; turn++ {
		threads := entriesOf(t, "/proc/self/task")
		for range launches {
			fail()
			succeed()
		}
		after := entriesOf(t, "/proc/self/task")
		if after <= threads+idleThreads {
			break
		}
		if turn == 3 {
			t.Fatalf("%d threads before, %d after", threads, after)
		}
	}
	// What is leaked never goes; what is just being closed, or what others have mounted, does.
	until(t, fmt.Sprintf("%d file descriptors", before), func() bool { return entriesOf(t, "/proc/self/fd") <= before })
	until(t, fmt.Sprintf("%d mounts", mounts), func() bool { return node.mounts(t) == mounts })
	node.nothingLeft(t)
	// The garbage collector closes files that are forgotten, but what nobody closes stays in use: the store then does not close its own.
	if _, err := node.store.Collect(func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		if to, _ := os.Readlink("/proc/self/fd/" + entry.Name()); to == node.storedFile(s.Plugin.GetDigests()[store.Platform]) {
			t.Error("the executable is still in use")
		}
	}
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
