package command_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/netns"
)

// namespaces says whether network namespaces can be made.
func namespaces() bool {
	if os.Geteuid() != 0 {
		return false
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- unix.Unshare(unix.CLONE_NEWNET)
	}()
	return <-done == nil
}

// noNetwork fails if there is something of the network of a dev directory on this machine: nonetwork DIRECTORY
func noNetwork(ts *testscript.TestScript, _ bool, args []string) {
	state, err := filepath.EvalSymlinks(ts.MkAbs(args[0]))
	ts.Check(err)
	network := netns.Network{Owner: state}
	if network.Has(1) {
		ts.Fatalf("the network namespace %s is left", network.Namespace(1))
	}
	if _, err := net.InterfaceByName(network.Bridge()); err == nil {
		ts.Fatalf("the bridge %s is left", network.Bridge())
	}
}
