package nodes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// lighthouseCount asks the lighthouse of a node for its counter, or counts one further.
func lighthouseCount(t *testing.T, c *devcluster.Cluster, number int, method string) (count int, seen string) {
	t.Helper()
	status, seen := fleet.Status(t, c, number)
	request, err := http.NewRequestWithContext(t.Context(), method, status.Role("lighthouse").URL()+"/", nil)
	if err != nil {
		return -1, err.Error()
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return -1, err.Error() + "\n" + seen
	}
	defer answer.Body.Close()
	var counter struct {
		Count int `json:"count"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&counter); err != nil || answer.StatusCode != http.StatusOK {
		return -1, fmt.Sprint(answer.Status, err)
	}
	return counter.Count, ""
}

// TestNothingIsLost destroys two of three machines with their disks, makes the third the only member of the store, and has two new machines join it. Then it destroys all three, and brings the cluster
// back from a sealed snapshot. The third party's counter is what it was each time.
func TestNothingIsLost(t *testing.T) {
	c := counting{shared.Cluster(t)}
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	former := fleet.Await(t, c.Cluster, 1, patience, "three nodes with their roles", fleet.AllReady(3))
	c.addLighthouse(t)
	for range 6 {
		c.count(t)
	}
	counted := c.count(t)
	key := sealSnapshots(t, c.Cluster)
	if soak.Enabled { // at first the disks are not lost
		c.loseMajority(t, counted, func(int) {})
		c.comeBack(t, former, counted)
	}
	lost := c.loseMajority(t, counted, func(number int) { c.destroy(t, c.NodeDirectory(number)) })
	c.replace(t, lost...)
	c.await(t, counted, "the counter is what it was before two machines were lost")

	counted = c.count(t)
	status, _ := fleet.Status(t, c.Cluster, 1)
	file := filepath.Join(c.Home, "snapshot")
	c.MustReeve(t, "store", "snapshot", file)
	c.count(t) // which is lost with the machines
	lost = nil
	for number := 1; number <= 3; number++ {
		lost = append(lost, fleet.ID(t, c.Cluster, number))
	}
	for i, id := range lost {
		fleet.Kill(t, c.Cluster, i+1, id)
	}
	c.MustReeve(t, "dev", "down")
	c.destroy(t, c.Path("system"), c.Path("data"), c.NodeDirectory(2), c.NodeDirectory(3))
	restore := func(arguments ...string) devcluster.Result {
		return c.Run(t, c.Programs.Reeved(), append([]string{"restore", "--parameters", c.Path("reeved.yaml"), "--snapshot", file, "--cluster-id", status.Cluster.ID, "--again"}, arguments...)...)
	}
	if result := restore(); result.Code == 0 || !strings.Contains(result.Stderr, "--recovery-key") {
		t.Fatalf("the snapshot is not sealed: %s", result)
	}
	if result := restore("--recovery-key", key); result.Code != 0 {
		t.Fatal(result)
	}
	c.replace(t, lost...)
	c.addLighthouse(t)
	c.await(t, counted, "the counter is what it was in the snapshot")
	c.Down(t)
}

// counting is a cluster whose first node has a lighthouse.
type counting struct{ *devcluster.Cluster }

func (c counting) addLighthouse(t *testing.T) {
	t.Helper()
	c.MustReeve(t, "plugin", "add", "--approve", c.Programs.Lighthouse())
	c.MustReeve(t, "node", "role", "add", fleet.ID(t, c.Cluster, 1), "lighthouse", "--wait")
}

// count counts one further, and returns the counter.
func (c counting) count(t *testing.T) (count int) {
	t.Helper()
	eventually.True(t, patience, "the lighthouse counts", func() (bool, string) {
		var seen string
		count, seen = lighthouseCount(t, c.Cluster, 1, http.MethodPost)
		return count > 0, seen
	})
	return count
}

func (c counting) await(t *testing.T, want int, what string) {
	t.Helper()
	eventually.True(t, patience, what, func() (bool, string) {
		count, seen := lighthouseCount(t, c.Cluster, 1, http.MethodGet)
		return count == want, fmt.Sprint(count, seen)
	})
}

// destroy deletes directories of machines that are off.
func (c counting) destroy(t *testing.T, directories ...string) {
	t.Helper()
	for _, directory := range directories {
		if err := os.RemoveAll(directory); err != nil {
			t.Fatal(err)
		}
	}
}

// loseMajority kills the second and the third of three nodes, calls killed with the number of each, and makes the first the only member of the store. It returns the IDs of the lost ones.
func (c counting) loseMajority(t *testing.T, counted int, killed func(number int)) (lost []string) {
	t.Helper()
	status, _ := fleet.Status(t, c.Cluster, 1)
	cluster, survivor := status.Cluster.ID, status.Node.ID
	recoverQuorum := func(arguments ...string) devcluster.Result {
		return c.Reeve(t, append([]string{"store", "recover-quorum"}, arguments...)...)
	}
	if result := recoverQuorum("--cluster-id", cluster); result.Code != 4 || !strings.Contains(result.Stderr, "has a quorum") || !strings.Contains(result.Stderr, "leads it") {
		t.Fatalf("with a quorum it is not refused: %s", result)
	}
	lost = []string{fleet.ID(t, c.Cluster, 2), fleet.ID(t, c.Cluster, 3)}
	for i, id := range lost {
		fleet.Kill(t, c.Cluster, i+2, id)
		killed(i + 2)
	}
	eventually.True(t, patience, "the survivor has lost its quorum", func() (bool, string) {
		result := recoverQuorum()
		return result.Code == 4 && strings.Contains(result.Stderr, "there is no terminal to ask on"), result.String()
	})
	inVain := c.namesTheMissing(t, survivor, lost)
	var shown struct {
		Chosen    string   `json:"chosen"`
		Lost      []string `json:"lost"`
		Survivors []struct {
			NodeID    string `json:"node_id"`
			MemberID  string `json:"member_id"`
			Term      uint64 `json:"term"`
			Committed uint64 `json:"committed_index"`
			State     string `json:"state"`
		} `json:"survivors"`
	}
	if result := recoverQuorum("--dry-run", "-o", "json"); result.Code != 0 || json.Unmarshal([]byte(result.Stdout), &shown) != nil || len(shown.Survivors) != 1 {
		t.Fatal(result)
	}
	if one := shown.Survivors[0]; shown.Chosen != survivor || one.NodeID != survivor || one.MemberID != status.Store.MemberID || one.Term == 0 || one.Committed == 0 || one.State != "no quorum" ||
		!slices.Equal(shown.Lost, slices.Sorted(slices.Values(lost))) {
		t.Errorf("what is left: %+v", shown)
	}
	if result := recoverQuorum("--cluster-id", "another"); result.Code != 4 || !strings.Contains(result.Stderr, "nothing was changed") {
		t.Errorf("the ID of another cluster is not refused: %s", result)
	}
	if result := recoverQuorum("--abandon"); result.Code != 3 {
		t.Errorf("what was not begun is given up: %s", result)
	}
	inVain()
	began := time.Now()
	result := recoverQuorum("--cluster-id", cluster, "-o", "json")
	if result.Code != 0 {
		t.Fatal(result)
	}
	var document struct {
		Chosen     string  `json:"chosen"`
		Outcome    string  `json:"outcome"`
		Generation uint64  `json:"generation"`
		Seconds    float64 `json:"seconds"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		t.Fatal(err)
	}
	if document.Chosen != survivor || document.Outcome != "recovered" || document.Generation < uint64(began.Unix()) {
		t.Errorf("%+v", document)
	}
	t.Logf("from the promise to the first acknowledged write: %.1f s", document.Seconds)
	c.await(t, counted, "the counter goes on where it was")
	eventually.True(t, patience, "the cluster takes writes", func() (bool, string) {
		result := c.Reeve(t, "node", "label", survivor, "recovered=yes")
		return result.Code == 0, result.String()
	})
	return lost
}

// namesTheMissing waits until the store's status names the missing members, and makes calls of the cluster API at once. What it returns waits for these: each says that the store has no majority, and
// which members are missing.
func (c counting) namesTheMissing(t *testing.T, survivor string, missing []string) (inVain func()) {
	t.Helper()
	named := func(text string) bool {
		return !slices.ContainsFunc(missing, func(id string) bool { return !strings.Contains(text, id) })
	}
	eventually.True(t, patience, "the store's status names the missing members", func() (bool, string) {
		result := c.Reeve(t, "store", "status", survivor)
		return result.Code == 0 && named(lineOf(result.Stdout, "Problem")), result.String()
	})
	var calls []*devcluster.Running
	for _, arguments := range [][]string{{"node", "list"}, {"node", "delete", missing[0], "--yes"}, {"node", "role", "remove", survivor, "hostsfile"}} {
		calls = append(calls, c.Start(t, arguments...))
	}
	return func() {
		t.Helper()
		for _, call := range calls {
			result := call.Wait(t, patience)
			if result.Code != 5 || !strings.Contains(result.Stderr, "has no majority of its members") || !named(result.Stderr) || !strings.Contains(result.Stderr, "`reeve store status "+survivor+"`") {
				t.Errorf("it is not said that the store has no majority, and which members are missing: %s", result)
			}
			for _, word := range []string{"RST_STREAM", "CANCEL", "deadline exceeded"} {
				if strings.Contains(result.Stderr, word) {
					t.Errorf("words of the transport reach users: %s", result)
				}
			}
		}
	}
}

// comeBack starts the lost nodes again. They had a majority, and join the survivor.
func (c counting) comeBack(t *testing.T, former []fleet.Node, counted int) {
	t.Helper()
	survivor := fleet.ID(t, c.Cluster, 1)
	c.MustReeve(t, "dev", "up", "--detach")
	nodes := fleet.Await(t, c.Cluster, 1, patience, "all nodes are back and vote", fleet.AllRejoined(former))
	if fleet.ByID(nodes, survivor).Labels["recovered"] != "yes" {
		t.Errorf("what was written meanwhile is lost: %v", nodes)
	}
	for _, number := range []int{2, 3} {
		if _, err := os.Stat(filepath.Join(c.NodeDirectory(number), "data", "roles", "consensus", "former", "etcd")); err != nil {
			t.Errorf("what the member of node %d had was not put aside: %v", number, err)
		}
	}
	c.await(t, counted, "the counter is what it was")
}

// replace has new machines join until there are three nodes again, and deletes those that were lost.
func (c counting) replace(t *testing.T, lost ...string) {
	t.Helper()
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	for _, id := range lost {
		eventually.True(t, patience, "the lost node is deleted, once its last heartbeat is stale", func() (bool, string) {
			result := c.Reeve(t, "node", "delete", id, "--yes")
			return result.Code == 0, result.String()
		})
	}
	fleet.Await(t, c.Cluster, 1, patience, "three nodes, and none of the lost ones", func(nodes []fleet.Node) bool {
		left := slices.DeleteFunc(slices.Clone(nodes), func(node fleet.Node) bool { return node.State == "Decommissioned" })
		return fleet.AllReady(3)(left) && !slices.ContainsFunc(left, func(node fleet.Node) bool { return slices.Contains(lost, node.ID) })
	})
}
