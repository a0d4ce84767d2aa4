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

// TestNothingIsLost destroys two of three machines, which have all that the third has and more, makes the third the only member of the store, and has the two come back. Then it destroys all three, and brings the cluster
// back from a snapshot. The third party's counter is what it was each time.
func TestNothingIsLost(t *testing.T) {
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	former := fleet.Await(t, c, 1, patience, "three nodes with their roles", fleet.AllReady(3))
	ids := map[int]string{1: fleet.ID(t, c, 1), 2: fleet.ID(t, c, 2), 3: fleet.ID(t, c, 3)}
	if result := c.StartAlone(t, "plugin", "add", "--approve", c.Programs.Lighthouse(), "--dir", c.NodeDirectory(3)).Wait(t, patience); result.Code != 0 {
		t.Fatal(result)
	}
	c.MustReeve(t, "node", "role", "add", ids[3], "lighthouse", "--wait")
	const want = 7
	for range want {
		eventually.True(t, patience, "the lighthouse counts", func() (bool, string) {
			count, seen := lighthouseCount(t, c, 3, http.MethodPost)
			return count >= 0, seen
		})
	}
	counted, seen := lighthouseCount(t, c, 3, http.MethodGet)
	if counted < want {
		t.Fatalf("%d: %s", counted, seen)
	}
	status, _ := fleet.Status(t, c, 3)
	cluster := status.Cluster.ID
	recoverQuorum := func(arguments ...string) devcluster.Result {
		return c.StartAlone(t, append([]string{"store", "recover-quorum", "--dir", c.NodeDirectory(3)}, arguments...)...).Wait(t, patience)
	}
	if result := recoverQuorum("--cluster-id", cluster); result.Code != 4 || !strings.Contains(result.Stderr, "has a quorum") || !strings.Contains(result.Stderr, "leads it") {
		t.Fatalf("with a quorum it is not refused: %s", result)
	}

	for _, lost := range []int{1, 2} {
		fleet.Kill(t, c, lost, ids[lost])
	}
	eventually.True(t, patience, "the survivor has lost its quorum", func() (bool, string) {
		result := recoverQuorum()
		return result.Code == 4 && strings.Contains(result.Stderr, "there is no terminal to ask on"), result.String()
	})
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
	if one := shown.Survivors[0]; shown.Chosen != ids[3] || one.NodeID != ids[3] || one.MemberID == "" || one.Term == 0 || one.Committed == 0 || one.State != "no quorum" ||
		!slices.Equal(shown.Lost, slices.Sorted(slices.Values([]string{ids[1], ids[2]}))) {
		t.Errorf("what is left: %+v", shown)
	}
	if result := recoverQuorum("--cluster-id", "another"); result.Code != 4 || !strings.Contains(result.Stderr, "nothing was changed") {
		t.Errorf("the ID of another cluster is not refused: %s", result)
	}
	if result := recoverQuorum("--abandon"); result.Code != 3 {
		t.Errorf("what was not begun is given up: %s", result)
	}
	began := time.Now()
	result := recoverQuorum("--cluster-id", cluster, "-o", "json")
	if result.Code != 0 {
		t.Fatal(result)
	}
	var document struct {
		Chosen     string   `json:"chosen"`
		Outcome    string   `json:"outcome"`
		Lost       []string `json:"lost"`
		Generation uint64   `json:"generation"`
		Seconds    float64  `json:"seconds"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		t.Fatal(err)
	}
	if document.Chosen != ids[3] || document.Outcome != "recovered" || document.Generation < uint64(began.Unix()) {
		t.Errorf("%+v", document)
	}
	t.Logf("from the promise to the first acknowledged write: %.1f s", document.Seconds)
	eventually.True(t, patience, "the counter goes on where it was", func() (bool, string) {
		count, seen := lighthouseCount(t, c, 3, http.MethodGet)
		return count == counted, fmt.Sprint(count, seen)
	})
	eventually.True(t, patience, "the cluster takes writes", func() (bool, string) {
		result := c.StartAlone(t, "node", "label", ids[3], "recovered=yes", "--dir", c.NodeDirectory(3)).Wait(t, patience)
		return result.Code == 0, result.String()
	})

	// The others, who had a majority, come back at once, and join the survivor.
	c.MustReeve(t, "dev", "up", "--detach")
	nodes := fleet.Await(t, c, 1, patience, "all nodes are back and vote", fleet.AllRejoined(former))
	if fleet.ByID(nodes, ids[3]).Labels["recovered"] != "yes" {
		t.Errorf("what was written meanwhile is lost: %v", nodes)
	}
	for _, number := range []int{1, 2} {
		if _, err := os.Stat(filepath.Join(c.NodeDirectory(number), "data", "roles", "consensus", "former", "etcd")); err != nil {
			t.Errorf("what the member of node %d had was not put aside: %v", number, err)
		}
	}
	eventually.True(t, patience, "the counter is what it was", func() (bool, string) {
		count, seen := lighthouseCount(t, c, 3, http.MethodGet)
		return count == counted, fmt.Sprint(count, seen)
	})

	file := filepath.Join(c.Home, "snapshot")
	c.MustReeve(t, "store", "snapshot", file, "--unencrypted")
	eventually.True(t, patience, "the lighthouse counts what is lost with the machines", func() (bool, string) {
		count, seen := lighthouseCount(t, c, 3, http.MethodPost)
		return count > counted, seen
	})
	for number := 1; number <= 3; number++ {
		fleet.Kill(t, c, number, ids[number])
	}
	c.MustReeve(t, "dev", "down")
	for _, directory := range []string{filepath.Join(c.NodeDirectory(1), "system"), filepath.Join(c.NodeDirectory(1), "data"), c.NodeDirectory(2), c.NodeDirectory(3)} {
		if err := os.RemoveAll(directory); err != nil {
			t.Fatal(err)
		}
	}
	if result := c.Run(t, c.Programs.Reeved(), "restore", "--parameters", c.Path("reeved.yaml"), "--snapshot", file, "--cluster-id", cluster, "--again"); result.Code != 0 {
		t.Fatal(result)
	}
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	made := map[int]string{1: fleet.ID(t, c, 1), 2: fleet.ID(t, c, 2), 3: fleet.ID(t, c, 3)}
	for number := 1; number <= 3; number++ {
		eventually.True(t, patience, "the former node is deleted, once its last heartbeat is stale", func() (bool, string) {
			result := c.Reeve(t, "node", "delete", ids[number], "--yes")
			return result.Code == 0, result.String()
		})
	}
	fleet.Await(t, c, 1, patience, "three new nodes, and no other", func(nodes []fleet.Node) bool {
		left := slices.DeleteFunc(slices.Clone(nodes), func(node fleet.Node) bool { return node.State == "Decommissioned" })
		return fleet.AllReady(3)(left) && !slices.ContainsFunc(left, func(node fleet.Node) bool { return node.ID == ids[1] || node.ID == ids[2] || node.ID == ids[3] })
	})
	c.MustReeve(t, "plugin", "add", "--approve", c.Programs.Lighthouse())
	c.MustReeve(t, "node", "role", "add", made[1], "lighthouse", "--wait")
	eventually.True(t, patience, "the counter is what it was in the snapshot", func() (bool, string) {
		count, seen := lighthouseCount(t, c, 1, http.MethodGet)
		return count == counted, fmt.Sprint(count, seen)
	})
	c.Down(t)
}
