package nodes_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// TestFormerNodesComeToARestoredCluster restores the first of three nodes from a snapshot. The two others, which have a majority of the former store, stay with it, also when they hear of the restored one. When they have none any more,
// each comes to the restored cluster by itself: without a ticket, and with a member that has given up its former data.
func TestFormerNodesComeToARestoredCluster(t *testing.T) {
	c := shared.OrdinaryCluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	fleet.Await(t, c, 1, patience, "three nodes", fleet.AllReady(3))
	first, second, third := fleet.ID(t, c, 1), fleet.ID(t, c, 2), fleet.ID(t, c, 3)
	status, _ := fleet.Status(t, c, 1)
	c.MustReeve(t, "node", "label", second, "written=before")
	file := filepath.Join(c.Home, "snapshot")
	c.MustReeve(t, "store", "snapshot", file, "--unencrypted")
	c.MustReeve(t, "node", "label", second, "written=later")
	c.MustReeve(t, "dev", "down")

	for _, directory := range []string{"system", "data"} {
		if err := os.RemoveAll(c.Path(directory)); err != nil {
			t.Fatal(err)
		}
	}
	result := c.Run(t, c.Programs.Reeved(), "restore", "--parameters", c.Path("reeved.yaml"), "--snapshot", file, "--cluster-id", status.Cluster.ID, "--again")
	if result.Code != 0 {
		t.Fatal(result)
	}
	start := func(number int) *devcluster.Running {
		return fleet.StartCore(t, c, filepath.Join(c.NodeDirectory(number), "reeved.yaml"))
	}
	cores := []*devcluster.Running{start(1)}
	isHome := func(status devcluster.Status) bool { return status.Membership.State == "Home" }
	fleet.AwaitStatus(t, c, 1, "the restored node is Home", isHome)
	status, _ = fleet.Status(t, c, 1)
	way := newGate(t, status.Cluster.Curators[0])
	for number := 2; number <= 3; number++ {
		nameCurator(t, filepath.Join(c.NodeDirectory(number), "reeved.yaml"), way.Addr().String())
		cores = append(cores, start(number))
	}
	for number := 2; number <= 3; number++ {
		fleet.AwaitStatus(t, c, number, "the node is Home", isHome)
	}
	restored := fleet.ID(t, c, 1)
	fleet.Await(t, c, 2, patience, "the former store is alive, and has what was written last", func(nodes []fleet.Node) bool {
		return fleet.ByID(nodes, second).Labels["written"] == "later" && fleet.ByID(nodes, second).Healthy && fleet.ByID(nodes, third).Healthy && fleet.ByID(nodes, restored).ID == ""
	})

	way.open.Store(true)
	refusesRestored(t, c, second, third, way.Addr().String())
	cores[2].Signal(t, 15)
	<-cores[2].Done()
	joined := func(nodes []fleet.Node, ids ...string) bool {
		for _, id := range ids {
			if node := fleet.ByID(nodes, id); !node.Healthy || node.Store == nil || node.Store.MemberID == "" || node.Store.Learner || node.Store.Step != "" || node.Role("consensus").State != "Ready" {
				return false
			}
		}
		return true
	}
	nodes := fleet.Await(t, c, 1, patience, "the second node comes by itself, and its member votes", func(nodes []fleet.Node) bool { return joined(nodes, restored, second) })
	if written := fleet.ByID(nodes, second).Labels["written"]; written != "before" {
		t.Errorf("the label that was written before the snapshot is %q", written)
	}
	if _, err := os.Lstat(filepath.Join(c.NodeDirectory(2), "data", "roles", "consensus", "former")); err != nil {
		t.Errorf("the former data of the member is not kept: %v", err)
	}
	if soak.Enabled { // it is the same once more
		cores[2] = start(3)
		fleet.Await(t, c, 1, patience, "the third node comes by itself, too", func(nodes []fleet.Node) bool { return joined(nodes, restored, second, third) })
	}
	if result := c.StartAlone(t, "events", "--dir", c.NodeDirectory(2), "-o", "json").Wait(t, patience); !strings.Contains(result.Stdout, "StoreFollowed") {
		t.Errorf("the second node has no event that says what it follows: %s", result)
	}
	c.MustReeve(t, "node", "delete", first, "--yes")
	for _, core := range cores[:2] {
		core.Signal(t, 15)
		if result := core.Wait(t, patience); result.Code != 0 {
			t.Error(result)
		}
	}
}

// refusesRestored stops the curators of the second and the third node for a moment, so that the second one hears of the restored store. It stays with its own, which has a majority, and says so.
func refusesRestored(t *testing.T, c *devcluster.Cluster, second, third, curator string) {
	t.Helper()
	stopped := append(fleet.Instance(t, c, second, "curator"), fleet.Instance(t, c, third, "curator")...)
	if len(stopped) != 2 {
		t.Fatalf("there are not two curators: %v", stopped)
	}
	t.Cleanup(func() { thaw(t, stopped) })
	send(t, stopped, unix.SIGSTOP)
	eventually.True(t, patience, "the second node refuses the restored store", func() (bool, string) {
		result := c.StartAlone(t, "events", "--dir", c.NodeDirectory(2), "-o", "json").Wait(t, patience)
		return strings.Contains(result.Stdout, `"StoreRefused"`) && strings.Contains(result.Stdout, "the curator at "+curator+" serves generation ") &&
			strings.Contains(result.Stdout, "of which a majority may be alive"), result.String()
	})
	thaw(t, stopped)
	fleet.Await(t, c, 2, patience, "the former store goes on", func(nodes []fleet.Node) bool {
		return fleet.ByID(nodes, second).Labels["written"] == "later" && fleet.ByID(nodes, second).Healthy && fleet.ByID(nodes, third).Healthy
	})
	if _, err := os.Lstat(filepath.Join(c.NodeDirectory(2), "data", "roles", "consensus", "former")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the member of a store that is alive has put its data aside: %v", err)
	}
}

// nameCurator has the parameters in a file name where a curator is.
func nameCurator(t *testing.T, file, address string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(content), "network:\n")
	indent := after[:len(after)-len(strings.TrimLeft(after, " "))]
	if !found || indent == "" {
		t.Fatalf("the parameters in %s have no section network:\n%s", file, content)
	}
	content = []byte(before + "network:\n" + indent + "curators: [" + address + "]\n" + after)
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// gate passes connections on to an address from when it is open, so that nobody finds the way too early on a slow machine.
type gate struct {
	net.Listener
	open atomic.Bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: listener}
	ctx, cancel := context.WithCancel(context.Background())
	var passing sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		passing.Wait()
	})
	passing.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() {
				defer from.Close()
				if g.open.Load() {
					pass(ctx, from, to)
				}
			})
		}
	})
	return g
}

// pass passes on what comes from either side until one of them ends.
func pass(ctx context.Context, from net.Conn, to string) {
	target, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	end := func() { _, _ = from.Close(), target.Close() }
	defer end()
	defer context.AfterFunc(ctx, end)()
	var back sync.WaitGroup
	back.Go(func() {
		defer end()
		_, _ = io.Copy(from, target)
	})
	_, _ = io.Copy(target, from)
	end()
	back.Wait()
}
