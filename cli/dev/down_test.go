package dev_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/target"
)

// silent makes a dev directory, and starts a process that has its lock as a reeved has it, and does not answer.
func silent(t *testing.T, shell string) (path string, pid int) {
	t.Helper()
	root, plan, places := makePlan(t)
	path = filepath.Join(root, "d")
	made, err := dev.Make(path, plan, places)
	if err != nil {
		t.Fatal(err)
	}
	system := made.Parameters.GetDirectories().GetSystem()
	if err := os.MkdirAll(system, 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sh", "-c", shell+`; exec flock --no-fork "$1" sh -c 'echo; exec sleep 3600'`, "sh", filepath.Join(system, "lock"))
	has, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	if _, err := has.Read(make([]byte, 1)); err != nil || !target.Held(path) {
		t.Fatalf("nobody has the lock of %s: %v", path, err)
	}
	return path, command.Process.Pid
}

// A node that does not say which roles it runs may have been killed before it stopped them.
func TestDownOfASilentNode(t *testing.T) {
	path, pid := silent(t, ":")
	reeved, told := filepath.Join(t.TempDir(), "reeved"), filepath.Join(t.TempDir(), "told")
	if err := os.WriteFile(reeved, []byte("#!/bin/sh\necho \"$@\" >"+told+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		down, err := dev.Down(t.Context(), path, reeved, 0)
		if err != nil || down.Stopped != pid || !down.Reaped {
			t.Errorf("process %d: %+v, %v", pid, down, err)
		}
	})
	if got, err := os.ReadFile(told); err != nil || !strings.HasPrefix(string(got), "reap --parameters ") {
		t.Errorf("reeved was told %q, %v", got, err)
	}
}

// Nor does anybody know for how long its roles may take to stop.
func TestDownWaitsForASilentNode(t *testing.T) {
	path, _ := silent(t, "trap '' TERM")
	// Without the directory of its socket that is not waited for.
	if err := os.Remove(filepath.Join(path, "run")); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := dev.Down(ended, path, "/nobody", 0); err == nil || !strings.Contains(err.Error(), "after 5m30s there are left: reeved") {
		t.Errorf("%v", err)
	}
}
