package devcluster

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// makeNetwork makes a network namespace that has the loopback interface alone. The test has it open; after the test it is gone with the last process in it.
func makeNetwork(t testing.TB) *os.File {
	t.Helper()
	var namespace *os.File
	err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(loopback); err != nil {
			return fmt.Errorf("start the loopback interface: %w", err)
		}
		namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	return namespace
}

// startCommand starts a command in the network of the cluster.
func (c *Cluster) startCommand(command *exec.Cmd) error {
	if c.network == nil {
		return command.Start()
	}
	return onOwnThread(func() error {
		if err := unix.Setns(int(c.network.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace of the cluster: %w", err)
		}
		return command.Start()
	})
}

// onOwnThread calls what changes the thread that it runs on. The thread is never unlocked, so it ends with its goroutine. The main thread would not, and would keep the change: it is held until another one is taken.
func onOwnThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			done <- do()
			return
		}
		err := onOwnThread(do)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
