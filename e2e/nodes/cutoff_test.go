package nodes_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// cutWithin is how soon after its removal was acknowledged nothing takes a node's certificates any more. Only soak holds that, since a machine may have more to do than it
// can; that all of it ends is held everywhere.
const cutWithin = 5 * time.Second

// cutOff removes a node that does nothing by itself any more, since all of its processes are stopped, while somebody who has its disk goes on in its name: what is closed the others have
// closed. After cutWithin, none of them has a connection with it, and none takes another one by any of its certificates.
func cutOff(t *testing.T, c *couriers) {
	const removed = 3
	id := c.id(removed)
	own := steal(t, c.Cluster, removed)
	own.stealRoles(t, c.Cluster, removed)
	if own.nodeID != id {
		t.Fatalf("the disk is that of %s, not of %s", own.nodeID, id)
	}
	frozen := freeze(t, c.Cluster, removed, id)
	ends := endsWith(t, c.Cluster, frozen)
	for _, want := range []string{"consensus", "courier"} {
		if !slices.ContainsFunc(ends, func(e end) bool { return strings.Contains(e.owner, "/"+want+"/") }) {
			t.Fatalf("no %s has a connection with the node that is to be removed: %v", want, ends)
		}
	}

	var workers sync.WaitGroup
	defer workers.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var tries []attempt
	for _, number := range c.others(removed) {
		now, _ := fleet.Status(t, c.Cluster, number)
		tries = append(tries, own.attempts(t, number, now, peerAddress(t, c, number, now))...)
	}
	ended := make(chan figure, 2*len(tries)+len(ends))
	for _, try := range tries {
		wait, err := try.open(ctx)
		if err != nil {
			t.Fatalf("%s, before the node is removed: %v", try.what, err)
		}
		workers.Go(func() {
			why := wait()
			ended <- figure{what: try.what + ", open", at: time.Now(), why: why}
		})
	}
	core := own.refusedByCores(t, ctx, c, removed)

	asked := time.Now()
	c.MustReeve(t, "node", "delete", id, "--force", "--yes")
	acknowledged := time.Now()
	for _, try := range tries {
		workers.Go(func() {
			var why error
			for why == nil && ctx.Err() == nil {
				why = try.refused(ctx)
			}
			ended <- figure{what: try.what + ", new", at: time.Now(), why: why}
		})
	}
	workers.Go(func() {
		for left := ends; len(left) > 0 && ctx.Err() == nil; {
			now, err := procfs.Connections()
			at := time.Now()
			left = slices.DeleteFunc(slices.Clone(left), func(e end) bool {
				if err == nil && e.among(now) {
					return false
				}
				ended <- figure{what: fmt.Sprintf("%s, the connection of %s with %s", e.owner, e.Local, e.Remote), at: at, why: err}
				return true
			})
		}
	})
	var figures []figure
	for range cap(ended) {
		select {
		case f := <-ended:
			figures = append(figures, f)
		case <-time.After(patience):
			t.Fatalf("%s after the last of these nothing more has ended: %v", patience, figures)
		}
	}
	core()
	if ctx.Err() != nil {
		t.Errorf("%s after the removal of a node its certificates are taken still: %v", patience, figures)
	}
	t.Logf("the removal was acknowledged %s after it was asked for; since then have ended (a time below zero is before that):", acknowledged.Sub(asked).Round(time.Millisecond))
	for _, f := range figures {
		after := f.at.Sub(acknowledged)
		t.Logf("%8.3f s  %s: %v", after.Seconds(), f.what, f.why)
		if soak.Enabled && after > cutWithin {
			t.Errorf("%s: %s after the removal was acknowledged, more than %s", f.what, after.Round(time.Millisecond), cutWithin)
		}
	}
	// It stays so.
	for _, try := range tries {
		if try.refused(ctx) == nil {
			t.Errorf("%s: let in again", try.what)
		}
	}
	for _, number := range c.others(removed) {
		fleet.AwaitStatus(t, c.Cluster, number, "the others go on", func(status devcluster.Status) bool {
			return status.Up("consensus", "curator", "courier") && c.connected(status, 3-number)
		})
	}
	thaw(t, frozen)
	fleet.AwaitDisowned(t, c.Cluster, removed)
}

// figure is when something has ended, and why as far as the other side was told.
type figure struct {
	what string
	at   time.Time
	why  error
}

// refusedByCores shows the node's certificates to the APIs of the other nodes, which take none of them at any time but that of the node key, and returns what does so again.
func (own *thief) refusedByCores(t *testing.T, ctx context.Context, c *couriers, removed int) (again func()) {
	t.Helper()
	var addresses []string
	for _, number := range c.others(removed) {
		status, _ := fleet.Status(t, c.Cluster, number)
		addresses = append(addresses, status.Node.APIAddress)
	}
	again = func() {
		for _, address := range addresses {
			for what, certificate := range map[string]tls.Certificate{"node SVID": own.node, "SVID of a role": own.role, "peer certificate": own.member} {
				conn, err := (&tls.Dialer{Config: careless(certificate, "h2")}).DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				_, err = conn.Read(make([]byte, 1))
				var alert *net.OpError
				if !errors.As(err, &alert) || alert.Op != "remote error" {
					t.Errorf("the node API at %s does not refuse the %s: %v", address, what, err)
				}
				_ = conn.Close()
			}
		}
	}
	again()
	return again
}

// freeze stops every process of a node without ending it, and returns them.
func freeze(t *testing.T, c *devcluster.Cluster, number int, id string) []procfs.Process {
	t.Helper()
	frozen := fleet.Processes(t, c, number, id)
	t.Cleanup(func() { thaw(t, frozen) })
	send(t, frozen, unix.SIGSTOP)
	return frozen
}

// thaw has them go on.
func thaw(t *testing.T, frozen []procfs.Process) {
	t.Helper()
	send(t, frozen, unix.SIGCONT)
}

// send sends a signal to processes. Those that have ended meanwhile are left out.
func send(t *testing.T, processes []procfs.Process, signal unix.Signal) {
	t.Helper()
	for _, process := range processes {
		handle, err := procfs.Hold(process)
		if err != nil {
			continue
		}
		if err := errors.Join(handle.Signal(signal), handle.Close()); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
	}
}

// end is an end of a connection at somebody who is not frozen, with one who is.
type end struct {
	procfs.Connection
	owner string
}

// among says whether it is one of those that are established.
func (e end) among(established []procfs.Connection) bool {
	return slices.ContainsFunc(established, func(c procfs.Connection) bool { return c.Local == e.Local && c.Remote == e.Remote })
}

// endsWith are the others' ends of the connections that frozen processes have.
func endsWith(t *testing.T, c *devcluster.Cluster, frozen []procfs.Process) (ends []end) {
	t.Helper()
	all, err := procfs.Connections()
	if err != nil {
		t.Fatal(err)
	}
	reversed := make(map[string]bool)
	key := func(c procfs.Connection) string { return c.Local.String() + " " + c.Remote.String() }
	stopped := make(map[int]bool)
	for _, process := range frozen {
		stopped[process.PID] = true
		of, err := process.Of(all)
		if err != nil {
			t.Fatal(err)
		}
		for _, connection := range of {
			reversed[key(connection.Reversed())] = true
		}
	}
	for _, process := range c.Processes(t) {
		if stopped[process.PID] {
			continue
		}
		of, err := process.Of(all)
		if err != nil {
			t.Fatal(err)
		}
		owner := process.Variable(devcluster.Instance)
		if owner == "" {
			owner = fmt.Sprintf("core (process %d)", process.PID)
		}
		for _, connection := range of {
			if reversed[key(connection)] {
				ends = append(ends, end{Connection: connection, owner: owner})
			}
		}
	}
	return ends
}

// losesTheStore takes the member of the store from a node with a role that uses the store: it is Blocked, says why, and runs again when there is a member again.
func losesTheStore(t *testing.T, c *couriers) {
	const number = 2
	id := c.id(number)
	c.MustReeve(t, "node", "role", "add", id, "archivist")
	c.MustReeve(t, "node", "role", "remove", id, "curator")
	c.MustReeve(t, "node", "role", "remove", id, "consensus")
	fleet.AwaitStatus(t, c.Cluster, number, "the role that uses the store is Blocked, and the others run on", func(status devcluster.Status) bool {
		archivist := status.Role("archivist")
		return archivist.State == "Blocked" && archivist.PID == 0 && strings.Contains(archivist.Reason, "ConsensusUser archivist") && strings.Contains(archivist.Reason, "reeve.consensus.v1") &&
			status.Role("consensus").State == "" && status.Up("courier", "hostsfile")
	})
	fleet.Await(t, c.Cluster, 1, patience, "the cluster's list says so", func(nodes []fleet.Node) bool { return fleet.ByID(nodes, id).Role("archivist").State == "Blocked" })
	c.MustReeve(t, "node", "role", "add", id, "consensus", "--config", fleet.Configuration(t, c.Cluster, `{"peerListen":"`+fleet.FreeAddress(t, "127.0.0.2")+`"}`))
	fleet.AwaitStatus(t, c.Cluster, number, "the role runs again", func(status devcluster.Status) bool { return status.Up("archivist", "consensus", "courier") })
}
