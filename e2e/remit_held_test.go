package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// held is a connection of a role to the store, with a watch on it. As root it is the connection itself, which stays open if the role ends: it ends only if
// the store ends it. An ordinary user may not have another process's descriptors if that is not dumpable, and holds nothing then.
type held struct{ files []int }

// holdWatch has a tenant watch its keys, and holds the connection.
func holdWatch(t *testing.T, c *devcluster.Cluster, status devcluster.Status, role string) held {
	t.Helper()
	socket := mustTell(t, status, role, post, "watch")
	if got := mustTell(t, status, role, get, "watch"); got != "open" {
		t.Fatalf("the watch is %q", got)
	}
	// It works: it sees what the role writes.
	mustTell(t, status, role, post, "put", "key", "seen", "value", "by the watch")
	eventually.True(t, patience, "the watch has seen a write", func() (bool, string) {
		got, err := tell(t, status, role, get, "watch")
		return got == "saw seen", fmt.Sprint(got, err)
	})
	var h held
	if !isRoot() {
		return h
	}
	pid := status.Role(role).PID
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		var number int
		if _, err := fmt.Sscan(entry.Name(), &number); err != nil {
			t.Fatal(err)
		}
		if link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, number)); !strings.HasPrefix(link, "socket:") {
			continue
		}
		file, err := unix.PidfdGetfd(process, number, 0)
		if errors.Is(err, unix.EBADF) {
			continue // closed meanwhile, as that of the last request is
		}
		if err != nil {
			t.Fatal(err)
		}
		peer, err := unix.Getpeername(file)
		if address, ok := peer.(*unix.SockaddrUnix); err != nil || !ok || address.Name != socket {
			_ = unix.Close(file)
			continue
		}
		h.files = append(h.files, file)
		t.Cleanup(func() { _ = unix.Close(file) })
		if hungUp(file) {
			t.Fatal("a connection that is used has ended")
		}
	}
	if len(h.files) == 0 {
		t.Fatalf("process %d has no connection to %s", pid, socket)
	}
	return h
}

// hungUp reports whether the other end of a connection is closed.
func hungUp(file int) bool {
	poll := []unix.PollFd{{Fd: int32(file), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1 && poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// awaitClosed waits until the store has closed every connection that is held.
func (h held) awaitClosed(t *testing.T) {
	t.Helper()
	eventually.True(t, patience, "the store has closed the connections of the role", func() (bool, string) {
		open := 0
		for _, file := range h.files {
			if !hungUp(file) {
				open++
			}
		}
		return open == 0, fmt.Sprintf("%d of %d are open", open, len(h.files))
	})
}

func awaitEnded(t *testing.T, handle *procfs.Handle) {
	t.Helper()
	eventually.True(t, patience, fmt.Sprint(handle.Process, " has ended"), func() (bool, string) { return handle.Ended(), "it runs" })
}

func awaitGone(t *testing.T, path string) {
	t.Helper()
	eventually.True(t, patience, path+" is gone", func() (bool, string) { return !exists(t, path), "it is there" })
}
