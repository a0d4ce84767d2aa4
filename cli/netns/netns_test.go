package netns_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/netns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requireNamespaces skips the test where none can be made.
func requireNamespaces(t *testing.T) {
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
}

// network returns one of two nodes, which is gone when the test ends.
func network(t *testing.T) netns.Network {
	t.Helper()
	requireNamespaces(t)
	n, err := netns.Choose(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, number := range []int{1, 2} {
			if err := n.Remove(number); err != nil {
				t.Error(err)
			}
		}
	})
	for _, number := range []int{1, 2} {
		if err := n.Add(number); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// listen listens as a node does.
func listen(t *testing.T, n netns.Network, number int) string {
	t.Helper()
	var listener net.Listener
	if err := netns.In(n.Namespace(number), func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(n.Address(number).String(), "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func dial(address string) error {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// TestNodesAndTheHostReachEachOther connects two nodes, and the host with both.
func TestNodesAndTheHostReachEachOther(t *testing.T) {
	n := network(t)
	first, second := listen(t, n, 1), listen(t, n, 2)
	if err := errors.Join(dial(first), dial(second)); err != nil {
		t.Errorf("the host: %v", err)
	}
	if err := netns.In(n.Namespace(1), func() error { return dial(second) }); err != nil {
		t.Errorf("the first node: %v", err)
	}
	// Whoever is in a namespace comes out of it.
	if _, err := net.InterfaceByName(n.Bridge()); err != nil {
		t.Errorf("this thread is not on the host: %v", err)
	}
}

// TestAgainIsTheSame has what is there already made again, and what was taken away.
func TestAgainIsTheSame(t *testing.T) {
	n := network(t)
	address := listen(t, n, 1)
	again, err := netns.Choose(n.Owner)
	if err != nil || again != n {
		t.Errorf("the directory has the network %v, and then %v, %v", n, again, err)
	}
	if err := n.Add(1); err != nil {
		t.Error(err)
	}
	if err := dial(address); err != nil {
		t.Errorf("adding a node again has disturbed it: %v", err)
	}
	if err := errors.Join(n.Remove(1), n.Remove(1), n.Remove(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := net.InterfaceByName(n.Bridge()); err == nil {
		t.Error("the bridge is left after the last node")
	}
	if err := netns.In(n.Namespace(1), func() error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace is left: %v", err)
	}
	if err := n.Add(1); err != nil {
		t.Fatal(err)
	}
	if current := n.Current(1); current != n.Address(1) {
		t.Errorf("the node had the address %s, and has %s", n.Address(1), current)
	}
}

// TestWhatFailsLeavesNothing has something else in the place of a namespace: nothing of the network is left, and what is in its place is.
func TestWhatFailsLeavesNothing(t *testing.T) {
	requireNamespaces(t)
	n, err := netns.Choose(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Remove(2); err != nil {
			t.Error(err)
		}
	})
	place := filepath.Join("/run/netns", n.Namespace(1))
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	if err := os.MkdirAll(filepath.Join(place, "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.Add(1); err == nil {
		t.Fatal("a namespace was made where something else is")
	}
	if _, err := net.InterfaceByName(n.Bridge()); err == nil || n.Has(1) {
		t.Errorf("there is a bridge (%v), or a namespace (%t)", err, n.Has(1))
	}
	if _, err := os.Stat(filepath.Join(place, "other")); err != nil {
		t.Errorf("what was in its place: %v", err)
	}
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	if err := n.Add(2); err != nil || !n.Has(2) {
		t.Errorf("another node: %v", err)
	}
}

// TestASubnetThatIsTaken has another network take the place of one whose subnet it has.
func TestASubnetThatIsTaken(t *testing.T) {
	n := network(t)
	other := netns.Network{Owner: t.TempDir(), Subnet: n.Subnet}
	var taken *netns.TakenError
	if err := other.Add(1); !errors.As(err, &taken) || taken.By == "" {
		t.Errorf("two networks have the subnet %s: %v", n.Subnet, err)
		if err := other.Remove(1); err != nil {
			t.Error(err)
		}
	}
	// What is the first one's stays.
	if err := other.Remove(1); err != nil {
		t.Error(err)
	}
	if err := dial(listen(t, n, 1)); err != nil {
		t.Error(err)
	}
}
