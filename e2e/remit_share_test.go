package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// TestRemitFairUse has a role use up what it may have in the store: it is told so, the other goes on, and everybody sees how much it has, also after the
// store was killed.
func TestRemitFairUse(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addTenant(t, c, "modest", "user=modest")
		status := addTenant(t, c, "greedy", "user=greedy", "asks=listen port=any, limit store-bytes=1Mi store-leases=3")
		var err error
		written := 0
		for ; err == nil && written < 100; written++ {
			_, err = tell(t, status, "greedy", post, "put", "key", fmt.Sprint("key", written), "size", "100000")
		}
		refusedBy(t, err, "a write beyond the quota", "ErrOverQuota", "greedy", "1048576", "store-bytes")
		if written-1 != 10 {
			t.Errorf("%d values of 100,000 bytes were taken, of a quota of 1 MiB", written-1)
		}
		leases := 0
		for err = nil; err == nil && leases < 100; leases++ {
			_, err = tell(t, status, "greedy", post, "lease")
		}
		refusedBy(t, err, "a lease beyond the quota", "ErrOverQuota", "greedy", "lease")
		if leases-1 != 3 {
			t.Errorf("%d leases were given, of a quota of 3", leases-1)
		}
		goesOn := func(status devcluster.Status) {
			t.Helper()
			for n := range 20 {
				mustTell(t, status, "modest", post, "put", "key", fmt.Sprint("key", n), "size", "100000")
			}
			mustTell(t, status, "modest", post, "lease")
		}
		goesOn(status)
		// What it has it can still read, and replace by less: that is how it gets room.
		mustTell(t, status, "greedy", post, "put", "key", "key0", "value", "small")
		_, err = tell(t, status, "greedy", post, "put", "key", "another", "size", "200000")
		refusedBy(t, err, "a write beyond the quota", "ErrOverQuota")

		before := awaitRole(t, c, "greedy", "its usage is shown", func(s shownRole) bool {
			u := s.Usage
			return u != nil && u.ConsensusUser == "greedy" && u.BytesQuota == 1<<20 && u.LeasesQuota == 3 && u.Leases == 3 &&
				u.Bytes > 900_000 && u.Bytes < 950_000 && u.Refused == 3
		}).Usage
		metrics := func() {
			t.Helper()
			all, _ := whole(t, func() string { return c.MustReeve(t, "node", "metrics", "self").Stdout }, "consensus")
			all.want(t, exactly(float64(before.Bytes)), "reeve_store_user_bytes", "user", "greedy")
			all.want(t, exactly(1<<20), "reeve_store_user_bytes_quota", "user", "greedy")
			all.want(t, exactly(3), "reeve_store_user_leases", "user", "greedy")
			all.want(t, exactly(3), "reeve_store_user_leases_quota", "user", "greedy")
		}
		metrics()
		if text := c.MustReeve(t, "node", "role", "show", "self", "greedy").Stdout; !strings.Contains(text, "1.0 MiB") {
			t.Errorf("the table does not show the quota: %s", text)
		}

		c.Kill(t, status.Role("consensus").PID)
		status = c.Await(t, patience, "the store again", func(s devcluster.Status) bool {
			return s.Up("consensus", "greedy", "modest") && s.Role("consensus").PID != status.Role("consensus").PID
		})
		// The one that was killed has counted refusals, and the one that runs has not.
		after := awaitRole(t, c, "greedy", "the new process says what its usage is", func(s shownRole) bool { return s.Usage != nil && s.Usage.Refused == 0 }).Usage
		if after.Bytes != before.Bytes || after.Leases != before.Leases || after.BytesQuota != before.BytesQuota || after.LeasesQuota != before.LeasesQuota {
			t.Errorf("the usage is %+v, before the store was killed %+v", after, before)
		}
		metrics()
		_, err = tell(t, status, "greedy", post, "put", "key", "another", "size", "200000")
		refusedBy(t, err, "a write beyond the quota after the store was killed", "ErrOverQuota")
		_, err = tell(t, status, "greedy", post, "lease")
		refusedBy(t, err, "a lease beyond the quota after the store was killed", "ErrOverQuota")
		goesOn(status)
	})
}

// TestRemitExitCause has a role use more memory than it may, and kills it by hand: the two are told apart.
func TestRemitExitCause(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("cannot run: memory is bounded by control groups, which are root's to make")
	}
	c := newCluster(t)
	c.Up(t)
	status := addTenant(t, c, "tenant", "asks=listen port=any, limit memory=64Mi")
	if shown := showRole(t, c, "tenant"); shown.misses("cgroup-memory") {
		t.Skipf("cannot run: this machine does not bound memory: %s", shown)
	}
	failed := func(what string, outOfMemory bool) {
		t.Helper()
		before := status
		status = awaitOther(t, c, status, "tenant")
		failure := showRole(t, c, "tenant").Instance.LastFailure
		if failure == nil || failure.OutOfMemory != outOfMemory || failure.InstanceID != before.Role("tenant").InstanceID {
			t.Errorf("%s: the failure is %+v, want out of memory: %t", what, failure, outOfMemory)
			return
		}
		if !outOfMemory && failure.Signal != "SIGKILL" || outOfMemory && !strings.Contains(failure.Cause, "memory") {
			t.Errorf("%s: the failure is %+v", what, failure)
		}
		events := c.Events(t, "RoleCrashed", "tenant")
		last := events[len(events)-1]
		if (last.Details["out_of_memory"] == "true") != outOfMemory || last.InstanceID != failure.InstanceID {
			t.Errorf("%s: the event is %+v", what, last)
		}
	}
	c.Kill(t, status.Role("tenant").PID)
	failed("killed", false)
	// Less than it may have is no matter.
	mustTell(t, status, "tenant", post, "eat", "mib", "16")
	if _, err := tell(t, status, "tenant", post, "eat", "mib", "256"); err == nil {
		t.Error("a role has four times the memory that it may")
	}
	failed("used more than it may", true)
	c.Kill(t, status.Role("tenant").PID)
	failed("killed again", false)
	othersAreWell(t, c)
}
