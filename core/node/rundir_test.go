package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/roles"
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
	// Held open, so that no other one gets its inode number. The node may have made another one already.
	sockets := filepath.Join(run, "host", "api.1")
	former, err := os.Open(sockets)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = former.Close() }()
	// What is a mount stays, as it does for any cleaner.
	_ = os.RemoveAll(run)
	if now, err := os.Open(sockets); err == nil {
		if same(former, now) {
			t.Fatal("it was not removed")
		}
		_ = now.Close()
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

// A directory of roles is removed while another one is missing, and a role cannot be restarted at first: each role is restarted all the same, once.
func TestRolesWithoutTheirSockets(t *testing.T) {
	run := t.TempDir()
	host, services := filepath.Join(run, "host"), filepath.Join(run, "services")
	set := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			if err := errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(host, services)
	refusal := error(nil)
	var restarted []string
	sockets := &roleSockets{
		log:         hclog.NewNullLogger(),
		problems:    changes{log: hclog.NewNullLogger()},
		directories: func() ([]string, error) { return []string{host, services}, nil },
		running:     func() []string { return []string{"api", "beacon", "gone"} },
		restart: func(role string) error {
			if role == "gone" {
				return &roles.NotDesiredError{Role: role}
			}
			if role == "beacon" && refusal != nil {
				return refusal
			}
			restarted = append(restarted, role)
			return nil
		},
		roots: make(map[string]*os.File),
		cut:   make(map[string]bool),
	}
	defer sockets.close()
	expect := func(when string, problem error, want ...string) {
		t.Helper()
		restarted = nil
		if err := sockets.look(); !errors.Is(err, problem) || !slices.Equal(restarted, want) {
			t.Errorf("%s: %v, restarted %q, not %q", when, err, restarted, want)
		}
	}
	expect("at first", nil)
	expect("unchanged", nil)
	set(host)
	if err := os.Remove(services); err != nil {
		t.Fatal(err)
	}
	expect("one is still missing", fs.ErrNotExist)
	refusal = errors.New("not now")
	set(services)
	expect("all are there", refusal, "api")
	refusal = nil
	expect("the role that failed", nil, "beacon")
	expect("all are restarted", nil)
}
