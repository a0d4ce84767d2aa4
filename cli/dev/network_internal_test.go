package dev

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/netns"
	"github.com/reeveproject/reeve/cli/setup"
)

// undecided returns a directory for which nothing was decided yet, and what to make it with, as somebody who can have network namespaces.
func undecided(t *testing.T) (path string, plan Plan, places Places) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces are made")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- unix.Unshare(unix.CLONE_NEWNET)
	}()
	if err := <-done; errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_SYS_ADMIN: network namespaces are made")
	}
	root, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	plugins := filepath.Join(root, "plugins")
	if err := errors.Join(os.Chmod(root, 0o711), os.Mkdir(plugins, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{setup.Consensus, setup.Curator, setup.Hostsfile} {
		if err := os.WriteFile(filepath.Join(plugins, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(root, "d")
	t.Cleanup(func() {
		// What a test that fails has left.
		if d, err := Find(path); err == nil && d.network != nil {
			if err := d.RemoveNetwork(); err != nil {
				t.Error(err)
			}
		}
		_ = os.RemoveAll(root)
	})
	return path, Plan{Plugins: plugins, Namespaces: true}, Places{State: filepath.Join(root, "state"), Run: filepath.Join(root, "run")}
}

// wantUndecided fails the test if something is left that decides what is made later, or of the network.
func wantUndecided(t *testing.T, path string) {
	t.Helper()
	bridge := netns.Network{Owner: path}.Bridge()
	for _, name := range []string{networkName, parametersName} {
		if _, err := os.Lstat(filepath.Join(path, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	if _, err := net.InterfaceByName(bridge); err == nil {
		t.Errorf("the bridge %s is left", bridge)
	}
}

// TestWhatFailsDecidesNothing has a cluster with namespaces fail to be made, in every place where it can.
func TestWhatFailsDecidesNothing(t *testing.T) {
	t.Run("its parameters cannot be made", func(t *testing.T) {
		path, plan, places := undecided(t)
		failing := plan
		failing.Plugins = filepath.Join(path, "none")
		if _, err := Make(path, failing, places); err == nil {
			t.Fatal("a cluster without plugins was made")
		}
		wantUndecided(t, path)
		plan.Namespaces = false
		made, err := Make(path, plan, places)
		if err != nil || made.Namespace() != "" {
			t.Errorf("a cluster that is made without namespaces has %q, %v", made.Namespace(), err)
		}
	})
	t.Run("it was killed", func(t *testing.T) {
		path, plan, places := undecided(t)
		if err := os.Mkdir(path, 0o711); err != nil {
			t.Fatal(err)
		}
		killed := &Directory{State: path, Number: 1}
		if err := killed.makeNetwork(); err != nil {
			t.Fatal(err)
		}
		plan.Namespaces = false
		made, err := Make(path, plan, places)
		if err != nil {
			t.Fatal(err)
		}
		if made.Namespace() != "" {
			t.Errorf("a cluster that is made without namespaces has %q", made.Namespace())
		}
		if _, err := net.InterfaceByName(killed.network.Bridge()); err == nil {
			t.Error("the bridge of the one that was killed is left")
		}
	})
	t.Run("nothing of it ever ran", func(t *testing.T) {
		path, plan, places := undecided(t)
		made, err := Make(path, plan, places)
		if err != nil {
			t.Fatal(err)
		}
		if err := made.Prepare(); err != nil || !made.network.Has(1) {
			t.Fatalf("there is no namespace: %v", err)
		}
		if _, err := made.Start(filepath.Join(path, "none"), false, false); err == nil {
			t.Fatal("a reeved was started that there is not")
		}
		if err := errors.Join(made.Lower(), made.Undo()); err != nil {
			t.Error(err)
		}
		wantUndecided(t, path)
	})
}

// TestLowerLeavesWhatWasThere has the namespace of a node stay that was there before: the roles of a dead core may be in it.
func TestLowerLeavesWhatWasThere(t *testing.T) {
	path, plan, places := undecided(t)
	made, err := Make(path, plan, places)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Prepare(); err != nil {
		t.Fatal(err)
	}
	again, err := Make(path, plan, places)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Prepare(), again.Lower(), again.Undo()); err != nil {
		t.Fatal(err)
	}
	if !again.network.Has(1) || !again.hasParameters() {
		t.Error("what another one has made was taken away")
	}
}

// TestPortsOfTwoClusters has the nodes of two clusters, of which one does not run while the other is made, keep ports of their own.
func TestPortsOfTwoClusters(t *testing.T) {
	seen := make(map[string]string)
	for _, state := range []string{"/a", "/b", "/c", "/d"} {
		node := &Directory{State: filepath.Join(state, nodesName, "2"), Number: 2}
		address, err := node.chosen()
		if err != nil {
			t.Skipf("this machine does not listen on %s: %v", loopback(2), err)
		}
		if other, taken := seen[address]; taken {
			t.Errorf("%s and %s have both chosen %s", other, state, address)
		}
		seen[address] = state
	}
	// What another program has is not chosen.
	node := &Directory{State: filepath.Join("/a", nodesName, "2"), Number: 2}
	first, err := node.chosen()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if second, err := node.chosen(); err != nil || second == first || listens(second) != nil {
		t.Errorf("%s is taken, and %s is chosen: %v", first, second, err)
	}
}
