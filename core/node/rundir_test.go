package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/core/storage"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Somebody removes the run directory under a node that runs. The node is reached again, its roles run with sockets of their own, and it is still the only core.
func TestTheRunDirectoryIsRemoved(t *testing.T) {
	a := newAlive(t, plain())
	a.start()
	process := func(s *nodev1.Status) (pid int32) {
		for _, instance := range s.GetNode().GetInstances() {
			if instance.GetRole() == "api" {
				pid = int32(instance.GetPid())
			}
		}
		return pid
	}
	before := process(a.until("the role", ready))
	run := a.layout().Run
	entries, err := os.ReadDir(run)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%v, %v", entries, err)
	}
	// What is a mount stays, as it does for any cleaner.
	_ = os.RemoveAll(run)
	if _, err := os.Lstat(filepath.Join(run, "host", "api.1")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("it was not removed: %v", err)
	}
	after := a.until("the role again", func(s *nodev1.Status) bool { return ready(s) && process(s) != before })
	instance := after.GetNode().GetInstances()[0]
	for _, i := range after.GetNode().GetInstances() {
		if i.GetRole() == "api" {
			instance = i
		}
	}
	if instance.GetLastFailure() != nil {
		t.Errorf("it counts as a failure of the role: %v", instance.GetLastFailure())
	}
	if _, err := os.Lstat(a.layout().NodeSocket()); err != nil {
		t.Error(err)
	}
	if hosts, err := filepath.Glob(filepath.Join(run, "host", "api.*", "host.sock")); err != nil || len(hosts) != 1 {
		t.Errorf("host sockets: %v, %v", hosts, err)
	}
	var inUse *storage.InUseError
	if _, err := storage.Open(storage.Layout{System: t.TempDir(), Data: t.TempDir(), Run: run}); !errors.As(err, &inUse) {
		t.Errorf("another core on the same run directory: %v", err)
	}
	if err := a.end(); err != nil {
		t.Error(err)
	}
}
