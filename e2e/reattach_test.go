package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
		counting := keepCounting(t, before.Role("lighthouse"))

		for n := range 10 {
			c.Kill(t, c.Core(t).PID)
			counting.goesOn(t)
			if n == 0 {
				dead := c.Reeve(t, "status")
				if !strings.Contains(dead.Stderr, ", and 4 role processes run on without it (consensus, curator, hostsfile, lighthouse)") {
					t.Errorf("of a node whose core is dead: %s", dead)
				}
			}
			sameProcesses(t, c, before, func() { c.MustReeve(t, "dev", "up", "--detach") })
			if t.Failed() {
				t.Fatalf("killed %d times", n+1)
			}
			awaitWritten(t, c, "RoleAdopted", "lighthouse", n+1)
		}
		core := c.Core(t).PID
		sameProcesses(t, c, before, func() { c.MustReeve(t, "dev", "restart") })
		if again := c.Core(t).PID; again == core {
			t.Error("reeved was not replaced")
		}
		acknowledged := counting.end()
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

// sameProcesses has a core take the place of another, and fails the test unless the roles go on and the node is Home as soon as it says so. The test keeps the store busy: a
// role that uses it may be Degraded for a while, of which there is an event.
func sameProcesses(t *testing.T, c *devcluster.Cluster, before devcluster.Status, replace func()) {
	t.Helper()
	replace()
	after := c.Status(t)
	if !after.Up("hostsfile") || !maps.Equal(after.PIDs(), before.PIDs()) {
		t.Errorf("the roles were %v, and as soon as reeve has returned: %s", before, after)
	}
	after = c.AwaitUp(t, patience, withLighthouse...)
	for _, role := range withLighthouse {
		was, is := before.Role(role), after.Role(role)
		if was.InstanceID != is.InstanceID || was.Restarts != is.Restarts || !was.Since.Equal(is.Since) && len(c.Events(t, "RoleDegraded", role)) == 0 {
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

// awaitWritten waits until so many events of a type and a role are in the file of the node's journal: a core that is killed takes those with it that are not.
func awaitWritten(t *testing.T, c *devcluster.Cluster, kind, role string, count int) {
	t.Helper()
	eventually.True(t, patience, fmt.Sprintf("%d events %s of %s in the journal", count, kind, role), func() (bool, string) {
		shown := c.Events(t, kind, role)
		if len(shown) < count {
			return false, fmt.Sprint(shown)
		}
		content, err := os.ReadFile(c.Path("data", "events.jsonl"))
		return strings.Contains(string(content), fmt.Sprintf(`"sequence":"%d"`, shown[count-1].Sequence)), fmt.Sprint(err)
	})
}

// counting counts without a pause.
type counting struct {
	acknowledged, refused atomic.Int64
	first                 atomic.Pointer[error]
	// end ends it, and returns how often that was acknowledged. It fails the test for every time that it was refused.
	end func() int
}

// keepCounting counts until the end of the test at the latest. No role is to notice that its core is away.
func keepCounting(t *testing.T, lighthouse devcluster.Role) *counting {
	t.Helper()
	c := new(counting)
	var worker sync.WaitGroup
	over := make(chan struct{})
	worker.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
			switch _, err := request(http.MethodPost, lighthouse.URL()+"/"); {
			case err == nil:
				c.acknowledged.Add(1)
			// What the store has not answered by the time that the lighthouse gives it was neither done nor refused: its disk, or a processor, was busy.
			case !strings.Contains(err.Error(), context.DeadlineExceeded.Error()):
				c.refused.Add(1)
				c.first.CompareAndSwap(nil, &err)
			}
		}
	})
	c.end = sync.OnceValue(func() int {
		close(over)
		worker.Wait()
		if n := c.refused.Load(); n > 0 {
			t.Errorf("%d of %d writes were refused, the first with: %v", n, n+c.acknowledged.Load(), *c.first.Load())
		}
		return int(c.acknowledged.Load())
	})
	t.Cleanup(func() { c.end() })
	return c
}

// goesOn waits until a write was acknowledged that has begun since.
func (c *counting) goesOn(t *testing.T) {
	t.Helper()
	// One may have been under way.
	enough := c.acknowledged.Load() + 2
	eventually.True(t, patience, "writes are acknowledged", func() (bool, string) {
		return c.acknowledged.Load() >= enough, fmt.Sprintf("%d are, and %d were refused", c.acknowledged.Load(), c.refused.Load())
	})
}

// TestLeave ends reeved alone, as an upgrade does it.
func TestLeave(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		before := c.Up(t)
		running := handles(t, c, before)
		c.Signal(t, c.Core(t).PID, unix.SIGUSR1)
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
	})
}
