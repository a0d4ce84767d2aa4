package fleet

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// Machine sets a machine up that is to register with a ticket which approves it, and returns the file of its parameters.
func Machine(t testing.TB, c *devcluster.Cluster, number int) string {
	t.Helper()
	file := filepath.Join(c.Home, "ticket"+strconv.Itoa(number))
	c.MustReeve(t, "ticket", "create", "--role", "hostsfile", "--auto-approve", "--output-file", file)
	return Initialize(t, c, number, file)
}

// Initialize writes the parameters of a machine that is to register with the ticket of a file.
func Initialize(t testing.TB, c *devcluster.Cluster, number int, file string) string {
	t.Helper()
	state := c.NodeDirectory(number)
	parameters := filepath.Join(state, "reeved.yaml")
	// The directory is where the command line looks for a node of a dev directory.
	run := filepath.Join(c.Home, "r"+strconv.Itoa(number))
	if result := c.StartAlone(t, "init", "--join", file, "--file", parameters, "--state", state, "--run", run, "--address", "127.0.0."+strconv.Itoa(number),
		"--api-listen", "127.0.0."+strconv.Itoa(number)+":0", "--role", "hostsfile", "--hosts-file", filepath.Join(state, "hosts")).Wait(t, Patience); result.Code != 0 {
		t.Fatal(result)
	}
	if err := os.Symlink(run, filepath.Join(state, "run")); err != nil {
		t.Fatal(err)
	}
	return parameters
}

// StartCore starts a reeved of the cluster's user.
func StartCore(t testing.TB, c *devcluster.Cluster, parameters string) *devcluster.Running {
	t.Helper()
	return c.StartNode(t, c.Programs.Reeved(), parameters)
}

// AwaitKilledAt starts a core that ends itself at a step, and waits for that.
func AwaitKilledAt(t testing.TB, c *devcluster.Cluster, failpoints, parameters, step string) {
	t.Helper()
	core := c.StartNode(t, failpoints, parameters, "REEVE_FAILPOINT="+step+":1")
	select {
	case <-core.Done():
	case <-time.After(Patience):
		t.Fatalf("the core has not come to the step %s; its log: %s", step, filepath.Join(filepath.Dir(parameters), "reeved.log"))
	}
	if result := core.Wait(t, time.Second); result.Code != -1 {
		t.Fatalf("the core ended otherwise than at the step %s: %s", step, result)
	}
}

// Configuration is a file with the configuration of a role, which the cluster's user may read.
func Configuration(t testing.TB, c *devcluster.Cluster, document string) string {
	t.Helper()
	file, err := os.CreateTemp(c.Home, "configuration")
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(document)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// lastPort is the last port that was given by FreeAddress. Where tests have no network of their own, other runs begin elsewhere.
var lastPort = func() *atomic.Int64 {
	port := new(atomic.Int64)
	port.Store(20_000 + int64(os.Getpid())%10_000)
	return port
}()

// FreeAddress is an address of a host that nobody listens on, each time another one. The kernel gives no such port to who asks for any.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	for {
		address := net.JoinHostPort(host, strconv.FormatInt(lastPort.Add(1), 10))
		listener, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err == nil {
			err = listener.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
}
