package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// tried is what became of a call that the probe made; table is all of them. They are the probe's documents.
type tried struct {
	Service, Method, Call string
	Permitted             bool
	Code, Message         string
}

type table struct {
	Results []tried
	Methods []string
}

// ask asks the probe.
func ask(t *testing.T, method, url string, into any) {
	t.Helper()
	body, err := request(method, url)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		t.Fatalf("%s: %v: %s", url, err, body)
	}
}

// TestConfinement looks from inside of a role at what it gets of the store, of the host and of other roles.
func TestConfinement(t *testing.T) {
	t.Parallel()
	asBothUsers(t, func(t *testing.T, c *devcluster.Cluster) {
		node := c.Up(t).Node.ID
		c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "probe", nil))
		for _, role := range []string{"victim", "probe", "stranger", "meddler"} {
			c.MustReeve(t, "node", "role", "add", node, role)
		}
		status := c.Status(t)
		probe := status.Role("probe")

		t.Run("every call", func(t *testing.T) { everyCall(t, status) })
		t.Run("errors of Dial", func(t *testing.T) {
			if got := status.Role("stranger").Values["dial"]; got != "ErrUnknownUser" {
				t.Errorf("a role without a ConsensusUser gets %s, want ErrUnknownUser", got)
			}
		})
		t.Run("powers of the host", func(t *testing.T) { noPowers(t, c, status.Role("meddler")) })
		t.Run("leases", func(t *testing.T) {
			var took string
			ask(t, "POST", probe.URL()+"/expire", &took)
			t.Logf("a key on a lease of 2 s was gone after %s", took)
		})
		t.Run("other processes", func(t *testing.T) { otherProcesses(t, c, status, probe) })
		t.Run("after consensus came back", func(t *testing.T) {
			var value string
			ask(t, "POST", probe.URL()+"/write?value=before", &value)
			c.Kill(t, status.Role("consensus").PID)
			c.Await(t, patience, "consensus Ready again", func(s devcluster.Status) bool {
				return s.Role("consensus").PID != status.Role("consensus").PID && s.Up("consensus")
			})
			ask(t, "POST", probe.URL()+"/write?value=after", &value)
			if now := c.Status(t).Role("probe"); value != "after" || now.PID != probe.PID {
				t.Errorf("the role reads %q, want after; it is %+v, before %+v", value, now, probe)
			}
			eventually.True(t, patience, "a watch that was there before sees what was written after", func() (bool, string) {
				var seen string
				ask(t, "GET", probe.URL()+"/seen", &seen)
				return seen == "after", seen
			})
			everyCall(t, c.Status(t))
		})
	})
}

// everyCall has the probe make every call of etcd's API without any namespace.
func everyCall(t *testing.T, status devcluster.Status) {
	t.Helper()
	var got table
	ask(t, "GET", status.Role("probe").URL()+"/table?lease="+status.Role("victim").Values["lease"], &got)
	seen := make(map[string]bool)
	denied := 0
	for _, result := range got.Results {
		seen[result.Service+"/"+result.Method] = true
		name := fmt.Sprintf("%s/%s (%s)", result.Service, result.Method, result.Call)
		switch {
		case result.Permitted:
			if result.Code != "OK" {
				t.Errorf("%s: %s %q, want that it is permitted", name, result.Code, result.Message)
			}
		case result.Method == "Authenticate":
			// Not a matter of permissions: there is no password by which to become root.
			if result.Code == "OK" {
				t.Errorf("%s: the role has become root", name)
			}
		case result.Method == "RangeStream":
			if result.Code != "Unimplemented" {
				t.Errorf("%s: %s %q, want that it is not offered", name, result.Code, result.Message)
			}
			denied++
		case result.Service == "Watch":
			// The answer to a watch is a message, which holds the status as a text.
			if !strings.Contains(result.Message, "PermissionDenied") || !strings.Contains(result.Message, "etcdserver: permission denied") {
				t.Errorf("%s: %s %q, want etcd's own refusal", name, result.Code, result.Message)
			}
			denied++
		default:
			if result.Code != "PermissionDenied" || result.Message != "etcdserver: permission denied" {
				t.Errorf("%s: %s %q, want etcd's own refusal", name, result.Code, result.Message)
			}
			denied++
		}
	}
	for _, method := range got.Methods {
		if !seen[method] {
			t.Errorf("the probe has not tried %s", method)
		}
	}
	if len(got.Methods) < 40 || denied < 60 {
		t.Errorf("%d methods and %d refusals: less than etcd's API has", len(got.Methods), denied)
	}
}

// noPowers checks that a role without a grant gets nothing of the host, and as root sees nothing of its neighbours.
func noPowers(t *testing.T, c *devcluster.Cluster, meddler devcluster.Role) {
	t.Helper()
	for _, call := range []string{"read", "replace"} {
		if got := meddler.Values[call]; !strings.Contains(got, "replace-file") || strings.Contains(got, "<nil>") {
			t.Errorf("to %s a file without a grant: %q, want a refusal that names the grant", call, got)
		}
	}
	if isRoot() && c.UIDs() != 0 {
		if got := meddler.Values["neighbours"]; !strings.Contains(got, "permission denied") {
			t.Errorf("the role lists the data of others: %q", got)
		}
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil || string(hosts) == "mine\n" {
		t.Errorf("/etc/hosts is %q (%v)", hosts, err)
	}
}

// otherProcesses connects to the socket of the probe's instance as somebody else.
func otherProcesses(t *testing.T, c *devcluster.Cluster, status devcluster.Status, probe devcluster.Role) {
	t.Helper()
	var socket string
	ask(t, "GET", probe.URL()+"/socket", &socket)

	// The test's own process: as root, or as the very user whose the role is.
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	refusedConnection(t, conn)
	if !isRoot() {
		return
	}
	// A user that is nobody's, that of the core, and those of the other roles.
	users := map[string]uint32{"nobody": nobody}
	for _, process := range c.Processes(t) {
		if process.UID != 0 && process.PID != probe.PID {
			users[fmt.Sprint(process)] = process.UID
		}
	}
	if len(users) < 2 {
		t.Fatalf("only these users to try: %v; the status is %s", users, status)
	}
	for name, uid := range users {
		command := exec.Command("/proc/self/exe")
		command.Env = []string{connectVariable + "=" + socket}
		command.Dir = "/"
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("user %d (%s) is not refused: %v: %s", uid, name, err, output)
		}
	}
}

// nobody is a user by whom no test runs anything but a call that is refused.
const nobody = 65534

// refusedConnection sends what begins a connection to etcd, and wants it to be closed without an answer.
func refusedConnection(t *testing.T, conn net.Conn) {
	t.Helper()
	if answer, err := talk(conn); len(answer) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a process that is not the instance's got an answer: %q, %v", answer, err)
	}
}

// refusal only turns a hang into a failure: a connection that is not to be is closed at once.
const refusal = time.Minute

// talk sends what begins a connection to etcd, and returns all that comes back.
func talk(conn net.Conn) ([]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(refusal)); err != nil {
		return nil, err
	}
	// It may be closed already.
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	return io.ReadAll(conn)
}

// connectVariable names a socket. With it in its environment the program of the tests is none of them, but a process that connects there.
const connectVariable = "REEVE_E2E_CONNECT"

// connectAndExit connects to a socket, and exits with 0 if it was refused.
func connectAndExit(socket string) {
	conn, err := net.Dial("unix", socket)
	if errors.Is(err, os.ErrPermission) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if answer, err := talk(conn); len(answer) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		fmt.Printf("an answer: %q, %v\n", answer, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestRemovedRoleLosesItsSocket disables a role with a ConsensusUser: nothing of its instance is left to connect to.
func TestRemovedRoleLosesItsSocket(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		node := c.Up(t).Node.ID
		c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "probe", nil))
		c.MustReeve(t, "node", "role", "add", node, "probe")
		var socket string
		ask(t, "GET", c.Status(t).Role("probe").URL()+"/socket", &socket)
		if _, err := os.Stat(socket); err != nil {
			t.Fatal(err)
		}
		c.MustReeve(t, "node", "role", "remove", node, "probe")
		eventually.True(t, patience, "the socket gone", func() (bool, string) {
			_, err := os.Stat(socket)
			return errors.Is(err, os.ErrNotExist), fmt.Sprint(err)
		})
	})
}

// TestInstancesApart checks what every process of an instance is given: as root a user of its own, and never more in its environment than
// it needs.
func TestInstancesApart(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		status := addLighthouse(t, c)
		core := c.Core(t)
		uids := make(map[uint32]string)
		for _, process := range c.Processes(t) {
			if process.PID == core.PID {
				continue
			}
			instance := process.Variable(devcluster.Instance)
			i := slices.IndexFunc(status.Roles, func(r devcluster.Role) bool { return r.PID == process.PID })
			if i < 0 || status.Roles[i].InstanceID != instance {
				t.Errorf("%s is of instance %s, and the status is %s", process, instance, status)
			}
			if process.Group != process.PID {
				t.Errorf("%s does not lead a process group of its own", process)
			}
			for _, entry := range process.Environment {
				name, _, _ := strings.Cut(entry, "=")
				if !strings.HasPrefix(name, "PLUGIN_") && !strings.HasPrefix(name, "REEVE_") && name != "GOTRACEBACK" && name != "SPIFFE_ENDPOINT_SOCKET" {
					t.Errorf("%s has %s in its environment", process, name)
				}
			}
			if stdin, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", process.PID)); err != nil || stdin != "/dev/null" {
				t.Errorf("standard input of %s is %s (%v), want /dev/null", process, stdin, err)
			}
			if other, taken := uids[process.UID]; taken && status.Node.Isolation == "own-uid" {
				t.Errorf("%s and %s have the same user", instance, other)
			}
			uids[process.UID] = instance
		}
		want := "shared-uid"
		if core.UID == 0 {
			want = "own-uid"
			if first := c.UIDs(); first == 0 {
				t.Error("no range of user IDs is reserved")
			}
			if uids[0] != "" {
				t.Errorf("%s runs as root", uids[0])
			}
		}
		if status.Node.Isolation != want {
			t.Errorf("the isolation is %s, want %s", status.Node.Isolation, want)
		}
		if want == "own-uid" && len(uids) != len(withLighthouse) || want == "shared-uid" && (len(uids) != 1 || uids[core.UID] == "") {
			t.Errorf("the users are %v", uids)
		}
		if text := c.MustReeve(t, "status").Stdout; !strings.Contains(text, want) {
			t.Errorf("the table of reeve status does not say %s: %s", want, text)
		}
	})
}

// TestTwoClusters runs two clusters side by side.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, one *devcluster.Cluster) {
		two := one.Sibling(t)
		first, second := one.Up(t), two.Up(t)
		if first.Node.ID == second.Node.ID || first.Cluster.ID == second.Cluster.ID {
			t.Errorf("both are node %s of cluster %s", first.Node.ID, first.Cluster.ID)
		}
		if a, b := one.UIDs(), two.UIDs(); a != 0 && a == b {
			t.Errorf("both have the user IDs from %d on", a)
		}
		mine := make(map[uint32]bool)
		for _, process := range one.Processes(t) {
			mine[process.UID] = true
		}
		for _, process := range two.Processes(t) {
			if isRoot() && process.UID != two.Core(t).UID && mine[process.UID] {
				t.Errorf("a role of each cluster has the user %d", process.UID)
			}
		}
		// The owner of one is nobody to the other.
		result := one.Run(t, suite.programs.Reeve(), "node", "list",
			"--address", second.Cluster.Curators[0], "--ca", caFile(t, two), "--owner-key", one.Path("owner.key"))
		if result.Code <= 0 {
			t.Errorf("the owner of one cluster lists the nodes of the other: %s", result)
		}
		file := filepath.Join(one.Home, "snapshot")
		one.MustReeve(t, "store", "snapshot", file, "--unencrypted")
		one.Down(t)
		if after := two.AwaitUp(t, patience, devcluster.DefaultRoles...); fmt.Sprint(after.PIDs()) != fmt.Sprint(second.PIDs()) {
			t.Errorf("one cluster was stopped, and the other is %s, before %s", after, second)
		}
		// Nor is one restored on the machine of the other.
		two.MustReeve(t, "node", "label", second.Node.ID, "of=two")
		restore := func(while string) {
			t.Helper()
			result := two.Run(t, suite.programs.Reeved(), "restore", "--parameters", two.Path("reeved.yaml"), "--snapshot", file, "--cluster-id", first.Cluster.ID, "--again")
			if holds := "holds node " + second.Node.ID + " of cluster " + second.Cluster.ID + ": a node is restored on empty directories only"; result.Code == 0 || !strings.Contains(result.Stderr, holds) {
				t.Errorf("a snapshot of another cluster is restored on a node that %s: %s", while, result)
			}
		}
		restore("runs")
		two.Down(t)
		restore("is off")
		after := two.Up(t)
		if after.Node.ID != second.Node.ID || after.Cluster.ID != second.Cluster.ID {
			t.Errorf("after a restore that was refused it is node %s of cluster %s, want %s of %s", after.Node.ID, after.Cluster.ID, second.Node.ID, second.Cluster.ID)
		}
		if list := two.MustReeve(t, "node", "list", "-o", "json").Stdout; !strings.Contains(list, `"of": "two"`) || strings.Contains(list, first.Node.ID) {
			t.Errorf("it has other data: %s", list)
		}
	})
}
