package e2e

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/proto/identity"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestPluginReplaced adds a newer version of a plugin whose role runs.
func TestPluginReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.Up(t).Node.ID
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "beacon", nil))
	c.MustReeve(t, "node", "role", "add", node, "beacon")
	before := c.Status(t)
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "beacon", map[string]string{"version": "0.2.0"}))
	after := c.Await(t, patience, "another instance of the beacon", func(s devcluster.Status) bool {
		return s.Up("beacon") && s.Role("beacon").PID != before.Role("beacon").PID
	})
	if got := after.Role("beacon"); got.PluginVersion != "0.2.0" || got.Restarts != 0 {
		t.Errorf("the beacon is %+v, want version 0.2.0 and no restarts", got)
	}
	for _, role := range devcluster.DefaultRoles {
		if after.Role(role).PID != before.Role(role).PID {
			t.Errorf("%s has process %d after %d", role, after.Role(role).PID, before.Role(role).PID)
		}
	}
}

// TestExecutableChanged changes the executable that the node keeps: it does not run what is not in the catalog.
func TestExecutableChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.Up(t).Node.ID
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "beacon", nil))
	c.MustReeve(t, "node", "role", "add", node, "beacon")
	beacon := c.Status(t).Role("beacon")
	file := c.Path("data", "plugins", strings.Replace(beacon.Digest, ":", "-", 1))
	other, err := os.ReadFile(suite.programs.Lighthouse())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, other, 0o555); err != nil {
		t.Fatal(err)
	}
	c.Kill(t, beacon.PID)
	c.Await(t, patience, "the beacon Failed with a reason that names the digest", func(s devcluster.Status) bool {
		role := s.Role("beacon")
		return role.State == "Failed" && strings.Contains(role.Reason, strings.TrimPrefix(beacon.Digest, "sha256:"))
	})
	// To give it to the node again mends it.
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "beacon", nil))
	c.MustReeve(t, "node", "role", "remove", node, "beacon")
	c.MustReeve(t, "node", "role", "add", node, "beacon")
	c.AwaitUp(t, patience, append([]string{"beacon"}, devcluster.DefaultRoles...)...)
}

// TestFileNotGranted configures hostsfile for a file that it has no grant for.
func TestFileNotGranted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.Up(t).Node.ID
	other := filepath.Join(c.Home, "other-hosts")
	if err := os.WriteFile(other, []byte("127.0.0.1\tlocalhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	add := []string{"node", "role", "add", node, "hostsfile", "--config", configuration(t, c, `{"path":`+quote(other)+`}`)}
	c.MustReeve(t, append(add, "--wait=none")...)
	c.Await(t, patience, "hostsfile with a reason that names "+other, func(s devcluster.Status) bool {
		return s.Role("hostsfile").State != "Ready" && strings.Contains(s.Role("hostsfile").Reason, other)
	})
	waitsInVain(t, c, []string{"hostsfile", other}, add...)
	if content, err := os.ReadFile(other); err != nil || string(content) != "127.0.0.1\tlocalhost\n" {
		t.Errorf("the file was changed: %q, %v", content, err)
	}
	if role := c.Status(t).Role("hostsfile"); role.State == "Ready" || !strings.Contains(role.Reason, other) {
		t.Errorf("hostsfile is %+v, want a reason that names %s", role, other)
	}
}

// TestEveryCommandInJSON wants a document of every command, and nothing else on standard output.
func TestEveryCommandInJSON(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	document := func(arguments ...string) {
		t.Helper()
		result := c.MustReeve(t, append(arguments, "-o", "json")...)
		decoder := json.NewDecoder(strings.NewReader(result.Stdout))
		documents := 0
		for decoder.More() {
			var any map[string]any
			if err := decoder.Decode(&any); err != nil {
				t.Fatalf("%v: %s", err, result)
			}
			documents++
		}
		// A log has one for every line.
		if documents == 0 || documents > 1 && arguments[0] != "logs" {
			t.Errorf("%d documents: %s", documents, result)
		}
	}
	document("dev", "up", "--detach")
	node := c.Status(t).Node.ID
	document("dev", "up", "--detach")
	document("status")
	document("node", "list")
	document("plugin", "add", "--approve", suite.programs.Lighthouse())
	document("plugin", "list")
	report := filepath.Join(c.Home, "report")
	reportFor(t, suite.programs.Lighthouse(), report, devcluster.ReadKey(t, c.Path("owner.key")))
	document("plugin", "report", "add", report)
	document("plugin", "report", "show", report)
	document("plugin", "report", "verify", report)
	document("plugin", "report", "get", "lighthouse")
	document("policy", "show")
	document("node", "role", "add", node, "lighthouse")
	document("logs", node, "consensus")
	document("node", "role", "remove", node, "lighthouse")
	document("version")
	document("dev", "down")
}

// TestNodeAPIForFewOnly asks the node's own API as everybody who is not the owner.
func TestNodeAPIForFewOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	up := c.Up(t)
	other := filepath.Join(c.Home, "other.key")
	writeKey(t, other)
	certificate := func(file string) []tls.Certificate {
		one, err := identity.SelfSigned(devcluster.ReadKey(t, file), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{one}
	}
	for name, test := range inOrder(map[string]struct {
		certificates []tls.Certificate
		ok           bool
	}{
		"nobody":         {nil, false},
		"another key":    {certificate(other), false},
		"the owner":      {certificate(c.Path("owner.key")), true},
		"a longer chain": {[]tls.Certificate{chain(certificate(other)[0], certificate(c.Path("owner.key"))[0])}, false},
	}) {
		t.Run(name, func(t *testing.T) {
			// Who the server is does not matter here.
			transport := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: test.certificates})
			conn, err := grpc.NewClient(up.Node.APIAddress, grpc.WithTransportCredentials(transport))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = nodev1.NewNodeServiceClient(conn).GetStatus(t.Context(), &nodev1.GetStatusRequest{})
			if ok := status.Code(err) == codes.OK; ok != test.ok {
				t.Errorf("got %v, want that it is allowed: %t", err, test.ok)
			}
		})
	}
	if !isRoot() {
		return
	}
	t.Run("another user of the machine", func(t *testing.T) {
		run, err := filepath.EvalSymlinks(c.Path("run"))
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command("/proc/self/exe")
		command.Env = []string{connectVariable + "=" + filepath.Join(run, "node.sock")}
		command.Dir = "/"
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("not refused: %v: %s", err, output)
		}
	})
}

// chain puts a certificate that proves nothing behind the one that is used.
func chain(used, behind tls.Certificate) tls.Certificate {
	used.Certificate = append(used.Certificate, behind.Certificate...)
	return used
}

// TestCuratorConfigurationChanged moves the cluster API to another address while it runs.
func TestCuratorConfigurationChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	up := c.Up(t)
	addLighthouse(t, c)
	address, release := listen(t)
	release()
	c.MustReeve(t, "node", "role", "add", up.Node.ID, "curator", "--config", configuration(t, c, `{"listen":`+quote(address)+`}`))
	c.Await(t, patience, "the curator at "+address, func(s devcluster.Status) bool {
		return s.Up(withLighthouse...) && len(s.Cluster.Curators) == 1 && s.Cluster.Curators[0] == address
	})
	c.MustReeve(t, "node", "list")
	eventually.True(t, patience, "the node healthy", func() (bool, string) {
		list := c.Reeve(t, "node", "list", "-o", "json")
		return strings.Contains(strings.ReplaceAll(list.Stdout, " ", ""), `"healthy":true`), list.String()
	})
	mustCount(t, http.MethodPost, c.Status(t).Role("lighthouse"), 1)
}
