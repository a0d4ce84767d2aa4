package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/roleplugin"
)

// patience only turns a hang into a failure: what is waited for takes a second or two on a machine that has nothing else to do.
const patience = 2 * time.Minute

// client makes a connection for every request, so that none is left when a test ends.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}

// request makes a request and returns the answer's body.
func request(method, url string) (string, error) {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, body)
	}
	return string(body), err
}

// count asks the lighthouse for its counter, or counts one further.
func count(method string, lighthouse devcluster.Role) (int, error) {
	body, err := request(method, lighthouse.URL()+"/")
	if err != nil {
		return 0, err
	}
	if method != http.MethodGet {
		if body, err = request(http.MethodGet, lighthouse.URL()+"/"); err != nil {
			return 0, err
		}
	}
	var counter struct {
		Count *int `json:"count"`
	}
	if err := json.Unmarshal([]byte(body), &counter); err != nil || counter.Count == nil {
		return 0, fmt.Errorf("the lighthouse answers %q, which has no count (%v)", body, err)
	}
	return *counter.Count, nil
}

// mustCount asks for the counter, or counts one further, and fails the test if the counter is another then. A store that was busy for longer than the lighthouse waits
// is asked again: the counter says what became of a write.
func mustCount(t *testing.T, method string, lighthouse devcluster.Role, want int) {
	t.Helper()
	var got int
	var err error
	next := method
	eventually.True(t, patience, "the store answers in time", func() (bool, string) {
		got, err = count(next, lighthouse)
		if err != nil {
			next = http.MethodGet
			return !strings.Contains(err.Error(), context.DeadlineExceeded.Error()), err.Error()
		}
		if next != method && got == want-1 {
			next = method
			return false, "it has not counted"
		}
		return true, ""
	})
	if err != nil || got != want {
		t.Fatalf("%s: the counter is %d (%v), want %d", method, got, err, want)
	}
}

// othersAreWell waits until the roles that every node has are Ready, and fails the test if one of them was started again.
func othersAreWell(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	status := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	for _, role := range devcluster.DefaultRoles {
		if status.Role(role).Restarts != 0 {
			t.Errorf("the others have suffered: %s", status)
		}
	}
}

// addLighthouse adds the example to a node that is up, and returns the status with it.
func addLighthouse(t *testing.T, c *devcluster.Cluster) devcluster.Status {
	t.Helper()
	c.MustReeve(t, "plugin", "add", "--approve", suite.programs.Lighthouse())
	c.MustReeve(t, "node", "role", "add", c.Status(t).Node.ID, "lighthouse")
	return c.Status(t)
}

// TestNewcomersPath is what README.md tells a newcomer to do.
func TestNewcomersPath(t *testing.T) {
	t.Parallel()
	asBothUsers(t, newcomersPath)
}

func newcomersPath(t *testing.T, c *devcluster.Cluster) {
	up := c.MustReeve(t, "dev", "up", "--detach")
	for _, next := range []string{"status", "node role remove", "plugin add", "node role add", "dev down"} {
		if !strings.Contains(up.Stdout+up.Stderr, next) {
			t.Errorf("dev up does not show %q as something to try: %s", next, up)
		}
	}
	status := c.Status(t)
	if !status.Up(devcluster.DefaultRoles...) {
		t.Fatalf("dev up has returned, and the node is not up: %s", status)
	}
	if !strings.HasPrefix(status.Node.ID, "reeve-") || len(status.Node.ID) != len("reeve-")+32 {
		t.Errorf("the node ID is %q, want reeve- and 32 hexadecimal digits", status.Node.ID)
	}
	if status.Node.Volume != "plain" {
		t.Errorf("the volume is %q, and the status has to say that it is plain", status.Node.Volume)
	}
	statusDocument(t, c)

	hostsfileComesAndGoes(t, c, status.Node.ID)

	status = addLighthouse(t, c)
	lighthouse := status.Role("lighthouse")
	mustCount(t, http.MethodGet, lighthouse, 0)
	mustCount(t, http.MethodPost, lighthouse, 1)
	mustCount(t, http.MethodPost, lighthouse, 2)

	c.Kill(t, lighthouse.PID)
	status = c.Await(t, patience, "another lighthouse", func(s devcluster.Status) bool {
		return s.Up("lighthouse") && s.Role("lighthouse").PID != lighthouse.PID
	})
	if restarts := status.Role("lighthouse").Restarts; restarts != 1 {
		t.Errorf("the lighthouse was restarted %d times, want 1", restarts)
	}
	mustCount(t, http.MethodGet, status.Role("lighthouse"), 2)

	c.Down(t)
	if result := c.Reeve(t, "status"); result.Code == 0 || !strings.Contains(result.Stderr, "dev up") {
		t.Errorf("the status of a node that does not run has to fail and to say how to start it: %s", result)
	}
	c.MustReeve(t, "dev", "up", "--detach")
	again := c.AwaitUp(t, patience, append([]string{"lighthouse"}, devcluster.DefaultRoles...)...)
	if again.Node.ID != status.Node.ID || again.Cluster.ID != status.Cluster.ID {
		t.Errorf("started again: node %s of cluster %s, want %s of %s", again.Node.ID, again.Cluster.ID, status.Node.ID, status.Cluster.ID)
	}
	mustCount(t, http.MethodGet, again.Role("lighthouse"), 2)

	logs := c.MustReeve(t, "logs", again.Node.ID, "lighthouse")
	if logs.Stdout == "" {
		t.Error("the lighthouse has no log")
	}
	nodeList(t, c, again)
	byAddress(t, c, again, 2)
	defaultDirectory(t, c)
}

// defaultDirectory leaves out --dir: ./var/dev is meant, if there is one.
func defaultDirectory(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	if result := c.Run(t, suite.programs.Reeve(), "status"); result.Code <= 0 || !strings.Contains(result.Stderr, "--dir") {
		t.Errorf("without any cluster: want a refusal that names --dir: %s", result)
	}
	if err := os.Mkdir(filepath.Join(c.Home, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(c.Directory, filepath.Join(c.Home, "var", "dev")); err != nil {
		t.Fatal(err)
	}
	if result := c.Run(t, suite.programs.Reeve(), "node", "list"); result.Code != 0 {
		t.Error(result)
	}
}

// statusDocument checks the parts of the document that are promised, by their very names.
func statusDocument(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal([]byte(c.MustReeve(t, "status", "-o", "json").Stdout), &document); err != nil {
		t.Fatal(err)
	}
	node, _ := document["node"].(map[string]any)
	membership, _ := document["membership"].(map[string]any)
	roles, _ := document["roles"].([]any)
	if _, ok := node["id"].(string); !ok {
		t.Errorf("no node.id in %v", document)
	}
	for _, field := range []string{"state", "reason"} {
		if _, ok := membership[field].(string); !ok {
			t.Errorf("no membership.%s in %v", field, document)
		}
	}
	if len(roles) != len(devcluster.DefaultRoles) {
		t.Fatalf("%d roles, want %v", len(roles), devcluster.DefaultRoles)
	}
	for _, entry := range roles {
		role, _ := entry.(map[string]any)
		for _, field := range []string{"role", "state", "reason"} {
			if _, ok := role[field].(string); !ok {
				t.Errorf("no %s in the role %v", field, entry)
			}
		}
		for _, field := range []string{"pid", "restarts"} {
			if _, ok := role[field].(float64); !ok {
				t.Errorf("no %s in the role %v", field, entry)
			}
		}
	}
}

// configuration writes a role's configuration to a file that the cluster's user can read.
func configuration(t *testing.T, c *devcluster.Cluster, document string) string {
	t.Helper()
	file := filepath.Join(c.Home, "configuration.json")
	if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // A string always has a document.
	}
	return string(quoted)
}

// nodeList compares the cluster's list with what the node says of itself.
func nodeList(t *testing.T, c *devcluster.Cluster, status devcluster.Status) {
	t.Helper()
	// The cluster hears of what a node is from the node, some time after it was started.
	eventually.True(t, patience, "the node Up and healthy", func() (bool, string) {
		var list struct {
			Nodes []struct {
				ID      string `json:"id"`
				State   string `json:"state"`
				Healthy bool   `json:"healthy"`
			} `json:"nodes"`
		}
		result := c.MustReeve(t, "node", "list", "-o", "json")
		if err := json.Unmarshal([]byte(result.Stdout), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Nodes) != 1 || list.Nodes[0].ID != status.Node.ID {
			t.Fatalf("the cluster's nodes are %v, want one, %s", list.Nodes, status.Node.ID)
		}
		return list.Nodes[0].State == "Up" && list.Nodes[0].Healthy, result.String()
	})
}

// byAddress does an operator's work from afar: with the address of a curator, the CA and the owner's key, and without the directory. counted is
// what the lighthouse has counted.
func byAddress(t *testing.T, c *devcluster.Cluster, status devcluster.Status, counted int) {
	t.Helper()
	ca := caFile(t, c)
	far := func(arguments ...string) devcluster.Result {
		return c.Run(t, suite.programs.Reeve(), append(arguments, "--address", status.Cluster.Curators[0], "--ca", ca, "--owner-key", c.Path("owner.key"))...)
	}
	must := func(arguments ...string) devcluster.Result {
		t.Helper()
		result := far(arguments...)
		if result.Code != 0 {
			t.Fatal(result)
		}
		return result
	}
	if list := must("node", "list", "-o", "json"); !strings.Contains(list.Stdout, status.Node.ID) {
		t.Errorf("the list from afar does not have the node: %s", list)
	}
	must("status", "-o", "json")
	must("node", "role", "remove", status.Node.ID, "lighthouse")
	must("plugin", "add", "--approve", suite.programs.Lighthouse())
	must("node", "role", "add", status.Node.ID, "lighthouse")
	must("logs", status.Node.ID, "lighthouse")
	mustCount(t, http.MethodGet, c.Status(t).Role("lighthouse"), counted)

	// Another key is nobody's.
	other := filepath.Join(c.Home, "other.key")
	writeKey(t, other)
	result := c.Run(t, suite.programs.Reeve(), "node", "list", "--address", status.Cluster.Curators[0], "--ca", ca, "--owner-key", other)
	if result.Code == 0 {
		t.Errorf("a key that is not the owner's lists the nodes: %s", result)
	}
}

// TestThirdPartyRole builds a role on the spot, outside of the workspace, and runs it.
func TestThirdPartyRole(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		beacon := buildPlugin(t, "beacon", nil)
		c.Up(t)
		c.MustReeve(t, "plugin", "add", "--approve", beacon)
		node := c.Status(t).Node.ID
		c.MustReeve(t, "node", "role", "add", node, "beacon")
		first := c.Status(t).Role("beacon")
		if first.State != "Ready" || first.Values["greeting"] != "ahoy" || first.Values["instance"] != first.InstanceID {
			t.Fatalf("the beacon is %+v, want it Ready with the greeting ahoy", first)
		}

		// Another configuration is another instance of it.
		c.MustReeve(t, "node", "role", "add", node, "beacon", "--config", configuration(t, c, `{"greeting":"hello","flashes":3}`))
		second := c.Status(t).Role("beacon")
		if second.State != "Ready" || second.Values["greeting"] != "hello" || second.Values["flashes"] != "3" || second.InstanceID == first.InstanceID {
			t.Fatalf("with another configuration the beacon is %+v, after %+v", second, first)
		}
		if second.Restarts != 0 {
			t.Errorf("a new configuration counts as a restart: %d", second.Restarts)
		}
		c.MustReeve(t, "node", "role", "remove", node, "beacon")
		if role := c.Status(t).Role("beacon"); role.Role != "" {
			t.Errorf("the beacon was removed and is %+v", role)
		}
		for _, process := range c.Processes(t) {
			if strings.Contains(process.Variable(devcluster.Instance), "/beacon/") {
				t.Errorf("the beacon was removed, and there still is %s", process)
			}
		}
	})
}

// TestExampleBuildsByItself builds the example with copies of the SDK and the protocol, and of nothing else of Reeve.
func TestExampleBuildsByItself(t *testing.T) {
	t.Parallel()
	executable, err := roleplugin.BuildExample(t.Context(), suite.programs.Workspace, suite.base, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.Up(t)
	c.MustReeve(t, "plugin", "add", "--approve", executable)
	c.MustReeve(t, "node", "role", "add", c.Status(t).Node.ID, "lighthouse")
	mustCount(t, http.MethodPost, c.Status(t).Role("lighthouse"), 1)
}
