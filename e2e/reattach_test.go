package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestReattach replaces reeved under roles that work: killed again and again, and as an upgrade does it.
func TestReattach(t *testing.T) {
	t.Parallel()
	asBothUsers(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addLighthouse(t, c)
		before := c.AwaitUp(t, patience, withLighthouse...)
		store := storeOf(t, c)
		stop := keepCounting(t, before.Role("lighthouse"))

		for n := range 10 {
			c.Kill(t, c.Core(t).PID)
			sameProcesses(t, c, before, func() { c.MustReeve(t, "dev", "up", "--detach") })
			if t.Failed() {
				t.Fatalf("killed %d times", n+1)
			}
		}
		core := c.Core(t).PID
		sameProcesses(t, c, before, func() { c.MustReeve(t, "dev", "restart") })
		if again := c.Core(t).PID; again == core {
			t.Error("reeved was not replaced")
		}
		acknowledged := stop()
		if got, err := count(http.MethodGet, before.Role("lighthouse")); err != nil || got < acknowledged {
			t.Errorf("the counter is %d (%v), and %d writes were acknowledged", got, err, acknowledged)
		}
		if after := storeOf(t, c); after != store {
			t.Errorf("the store was %+v and is %+v", store, after)
		}
		if adopted := c.Events(t, "RoleAdopted", "lighthouse"); len(adopted) != 11 {
			t.Errorf("%d events RoleAdopted, want 11", len(adopted))
		}

		// A role that was adopted is the core's like any other: its end is noticed, and it can be removed.
		c.Kill(t, before.Role("lighthouse").PID)
		again := c.Await(t, patience, "another lighthouse", func(s devcluster.Status) bool {
			return s.Up(withLighthouse...) && s.Role("lighthouse").PID != before.Role("lighthouse").PID
		})
		if got := again.Role("lighthouse").Restarts; got != 1 {
			t.Errorf("it was started again %d times, want once", got)
		}
		c.MustReeve(t, "dev", "restart")
		c.MustReeve(t, "node", "role", "remove", before.Node.ID, "lighthouse")
		c.Await(t, patience, "no lighthouse", func(s devcluster.Status) bool { return s.Role("lighthouse").Role == "" })
		run, err := filepath.EvalSymlinks(c.Path("run"))
		if err != nil {
			t.Fatal(err)
		}
		eventually.True(t, patience, "nothing of it in the run directory", func() (bool, string) {
			left, err := filepath.Glob(filepath.Join(run, "*", "lighthouse.*"))
			return err == nil && len(left) == 0, fmt.Sprint(left, err)
		})
		onlyThese(t, c, c.Status(t))
	})
}

// sameProcesses has a core take the place of another, and fails the test unless the roles go on and the node is Home as soon as it says so.
func sameProcesses(t *testing.T, c *devcluster.Cluster, before devcluster.Status, replace func()) {
	t.Helper()
	replace()
	after := c.Status(t)
	if !after.Up(withLighthouse...) || !maps.Equal(after.PIDs(), before.PIDs()) {
		t.Errorf("the roles were %v, and as soon as reeve has returned: %s", before, after)
	}
	for _, role := range withLighthouse {
		if was, is := before.Role(role), after.Role(role); was.InstanceID != is.InstanceID || was.Restarts != is.Restarts {
			t.Errorf("%s was %+v and is %+v", role, was, is)
		}
	}
}

// storeIs is what of the store changes if its member is started again, or elects another leader.
type storeIs struct {
	MemberID      string `json:"member_id"`
	LeaderID      string `json:"leader_id"`
	LeaderChanges uint64 `json:"leader_changes"`
}

func storeOf(t *testing.T, c *devcluster.Cluster) storeIs {
	t.Helper()
	var document struct {
		Store storeIs `json:"store"`
	}
	result := c.MustReeve(t, "store", "status", "-o", "json")
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil || document.Store.MemberID == "" {
		t.Fatalf("%v: %s", err, result)
	}
	return document.Store
}

// keepCounting counts without a pause, until the function that it returns is called, which returns how often that was acknowledged. It fails the test for every
// time that it was refused: no role is to notice that its core is away.
func keepCounting(t *testing.T, lighthouse devcluster.Role) (stop func() int) {
	t.Helper()
	var acknowledged, refused atomic.Int64
	var worker sync.WaitGroup
	over := make(chan struct{})
	var first atomic.Pointer[error]
	worker.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
			if _, err := request(http.MethodPost, lighthouse.URL()+"/"); err != nil {
				refused.Add(1)
				first.CompareAndSwap(nil, &err)
			} else {
				acknowledged.Add(1)
			}
		}
	})
	stop = sync.OnceValue(func() int {
		close(over)
		worker.Wait()
		if n := refused.Load(); n > 0 {
			t.Errorf("%d of %d writes were refused, the first with: %v", n, n+acknowledged.Load(), *first.Load())
		}
		return int(acknowledged.Load())
	})
	t.Cleanup(func() { stop() })
	return stop
}

// TestLeave ends reeved alone: as an upgrade does it, and by a fault of its own, which is none of its roles.
func TestLeave(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		before := c.Up(t)
		running := handles(t, c, before)
		for _, end := range []func(){
			func() { c.Signal(t, c.Core(t).PID, unix.SIGUSR1) },
			func() { breakAPI(t, c) },
		} {
			end()
			eventually.True(t, patience, "the end of reeved", func() (bool, string) {
				_, found := c.FindCore(t)
				return !found, ""
			})
			for role, handle := range running {
				if handle.Ended() {
					t.Errorf("reeved has left, and %s has ended", role)
				}
			}
			after := c.Up(t)
			if !maps.Equal(before.PIDs(), after.PIDs()) {
				t.Errorf("%s\nbefore: %s", after, before)
			}
		}
	})
}

// breakAPI has the room of reeved fail that serves the node's API: the kernel accepts nobody any more where it listens for the network.
func breakAPI(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	process, err := unix.PidfdOpen(c.Core(t).PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(process) }()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.Core(t).PID))
	if err != nil {
		t.Fatal(err)
	}
	broken := 0
	for _, file := range files {
		number, err := strconv.Atoi(filepath.Base(file))
		if err != nil {
			t.Fatal(err)
		}
		// The same socket as reeved has.
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			continue // closed meanwhile
		}
		address, _ := unix.Getsockname(fd) // no address, if it is no socket
		if _, ok := address.(*unix.SockaddrInet4); ok {
			if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 1 && unix.Shutdown(fd, unix.SHUT_RDWR) == nil {
				broken++
			}
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	if broken == 0 {
		t.Fatal("reeved does not listen for the network")
	}
}
