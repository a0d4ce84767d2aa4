package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/cli/target"
)

// locked starts a process that has the lock in a directory, as a reeved has it.
func locked(t *testing.T, dir string) int {
	t.Helper()
	command := exec.Command("flock", "--no-fork", filepath.Join(dir, "lock"), "sleep", "3600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command.Process.Pid
}

// A reeved whose socket is gone is found by its lock.
func TestNodeWithoutASocket(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "system"), 0o700); err != nil {
		t.Fatal(err)
	}
	// It waits for no socket then.
	ended, end := context.WithCancel(t.Context())
	end()
	if node, err := holdNode(ended, dir); node != nil || !errors.Is(err, target.ErrNotRunning) {
		t.Fatalf("%v, %v", node, err)
	}
	pid := locked(t, filepath.Join(dir, "system"))
	waitHeld(t, dir)
	node, err := holdNode(ended, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer node.close()
	if node.pid != pid {
		t.Errorf("process %d, not %d", node.pid, pid)
	}
}

func TestRunsOfDirectoriesThatAreGone(t *testing.T) {
	dir := t.TempDir()
	runs := filepath.Join(dir, "runs")
	make := func(name string) (run, owner string) {
		t.Helper()
		run, owner = filepath.Join(runs, name), filepath.Join(dir, "of-"+name)
		if err := errors.Join(os.MkdirAll(filepath.Join(run, "instances"), 0o700), os.MkdirAll(owner, 0o700), nameOwner(run, owner)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(run, "lock"), nil, 0o600), os.WriteFile(filepath.Join(owner, parametersName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return run, owner
	}
	stays := map[string]bool{}
	run, _ := make("there")
	stays[run] = true
	run, owner := make("gone")
	stays[run] = false
	mustRemove(t, owner)
	run, owner = make("held")
	stays[run] = true
	mustRemove(t, owner)
	locked(t, run)
	waitLocked(t, run)
	run, owner = make("left")
	stays[run] = true
	mustRemove(t, owner)
	recordSelf(t, run, started(t))
	run, owner = make("of a process that has the number now")
	stays[run] = false
	mustRemove(t, owner)
	recordSelf(t, run, "1")
	// Whoever made it, it names no owner.
	run = filepath.Join(runs, "other")
	stays[run] = true
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	collectRuns(runs)
	for run, stays := range stays {
		if _, err := os.Lstat(run); (err == nil) != stays {
			t.Errorf("%s: %v", run, err)
		}
	}
}

// recordSelf writes the record of an instance whose process has the number of this one, and started then.
func recordSelf(t *testing.T, run, start string) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	record := fmt.Sprintf(`{"role":"a","bootId":%q,"pid":%d,"start":%s}`, strings.TrimSpace(string(boot)), os.Getpid(), start)
	if err := os.WriteFile(filepath.Join(run, "instances", "a.1.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
}

// started is when this process started, in ticks after the boot.
func started(t *testing.T) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19]
}

func mustRemove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// waitLocked waits until another process has the lock of a run directory, which target.Held looks for in a system directory.
func waitLocked(t *testing.T, run string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(run, filepath.Join(dir, "system")); err != nil {
		t.Fatal(err)
	}
	waitHeld(t, dir)
}

// waitHeld waits until another process has the lock of a directory. The kernel tells nobody when that is.
func waitHeld(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !target.Held(dir); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody has the lock of %s", dir)
		}
	}
}
