package steps_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

var (
	// stepsOfRecovery are those that the consensus role has for nothing but the recovery of a lost majority.
	stepsOfRecovery = []string{"promise-recovery", "begin-recovery", "commit-log", "begin-generation", "remake-member", "adopt-remade", "drop-credentials", "mark-forced", "mark-recovered"}
	// stepsOfChosen are those of the survivor that becomes the only member, beside the recovery's own.
	stepsOfChosen = []string{"write-peer-key", "write-peer-ca", "write-peer-certificate", "share-authority", "mark-complete"}
	// stepsOfOther are those of a survivor that has promised the recovery, and joins the chosen one then: what its member had is put aside.
	stepsOfOther = []string{
		"promise-recovery", "mark-replaced", "put-aside", "delete-member", "mark-joining", "write-peer-key", "write-peer-ca", "write-peer-certificate", "begin-log", "mark-complete",
	}
	// afterRecovery are those of every start of a member and of every leader, and of a member that joins: TestStepsOfConsensusAndCurator kills there.
	afterRecovery = []string{
		"move-member", "follow-authority", "make-fence", "grant-fence", "delete-fence", "tell", "announce", "issue-peer-certificate", "add-learner", "promote",
	}
)

// survivors are what is left of a store whose other members are lost.
type survivors struct {
	t       *testing.T
	c       *devcluster.Cluster
	cluster string
	ids     map[int]string
	// alive are the numbers of the survivors, lost those of the others: of two nodes one each, of four nodes two.
	alive, lost []int
	former      []fleet.Node
}

// startSurvivors makes a cluster of two nodes or of four, all of which run.
func startSurvivors(t *testing.T, count int) *survivors {
	t.Helper()
	c := newCluster(t, runAside(t))
	allowCrashes(t, c)
	c.MustReeve(t, "dev", "up", "--nodes", strconv.Itoa(count), "--detach")
	s := &survivors{t: t, c: c, ids: make(map[int]string)}
	for number := 1; number <= count; number++ {
		s.ids[number] = fleet.ID(t, c, number)
		if number > count/2 {
			s.lost = append(s.lost, number)
		} else {
			s.alive = append(s.alive, number)
		}
	}
	if count > 3 { // the others have these anyway
		for _, role := range []string{"consensus", "curator"} {
			c.MustReeve(t, "node", "role", "add", s.ids[4], role, "--wait=false")
		}
	}
	status, _ := fleet.Status(t, c, 1)
	s.cluster = status.Cluster.ID
	s.await(fleet.AllReady(count))
	return s
}

// await waits until the nodes are as they should be.
func (s *survivors) await(as func([]fleet.Node) bool) {
	s.t.Helper()
	s.former = fleet.Await(s.t, s.c, 1, fleet.Patience, "all nodes are members of the store", as)
}

// lose kills the nodes that are to be lost.
func (s *survivors) lose() {
	s.t.Helper()
	for _, lost := range s.lost {
		fleet.Kill(s.t, s.c, lost, s.ids[lost])
	}
}

// back has the lost nodes come back.
func (s *survivors) back() {
	s.t.Helper()
	s.c.MustReeve(s.t, "dev", "up", "--detach")
	s.await(fleet.AllRejoined(s.former))
}

// begin begins the command on the nodes of the cluster that it finds.
func (s *survivors) begin(arguments ...string) *devcluster.Running {
	s.t.Helper()
	return s.c.Start(s.t, append([]string{"store", "recover-quorum"}, arguments...)...)
}

// chosen waits until the command finds all survivors and no quorum, and returns the number of the one that it would choose.
func (s *survivors) chosen() (chosen int) {
	s.t.Helper()
	eventually.True(s.t, fleet.Patience, "the survivors answer, and have no quorum", func() (bool, string) {
		result := s.begin("--dry-run", "-o", "json").Wait(s.t, fleet.Patience)
		var document struct {
			Chosen    string `json:"chosen"`
			Survivors []struct {
				NodeID string `json:"node_id"`
				Voter  bool   `json:"voter"`
			} `json:"survivors"`
		}
		if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
			return false, result.String()
		}
		answer := 0
		for _, number := range s.alive {
			for _, survivor := range document.Survivors {
				if survivor.Voter && survivor.NodeID == s.ids[number] {
					answer++
				}
			}
			if document.Chosen == s.ids[number] {
				chosen = number
			}
		}
		return answer == len(s.alive) && chosen > 0, result.String()
	})
	return chosen
}

// passedFile is where the role of a node names the points that it comes to.
func (s *survivors) passedFile(number int) string {
	return filepath.Join(s.c.NodeDirectory(number), "data", "roles", "consensus", "failpoint-passed")
}

// passed are the points of a recovery that the roles of the survivors have come to.
func (s *survivors) passed() (points []string) {
	for _, number := range s.alive {
		content, _ := os.ReadFile(s.passedFile(number))
		for _, point := range strings.Fields(string(content)) {
			if _, step, _ := strings.Cut(point, ":"); slices.Contains(stepsOfRecovery, step) {
				points = append(points, fmt.Sprint(point, " on node ", number))
			}
		}
	}
	return points
}

// complete fails the test if the role of a survivor passes a step in a recovery at which it was not killed.
func (s *survivors) complete(number int, points *points) {
	s.t.Helper()
	content, err := os.ReadFile(s.passedFile(number))
	if err != nil {
		s.t.Fatal(err)
	}
	killed, _ := points.done()
	var unknown []string
	for _, point := range strings.Fields(string(content)) {
		if _, step, _ := strings.Cut(point, ":"); !slices.Contains(killed, step) && !slices.Contains(afterRecovery, step) && !slices.Contains(unknown, step) {
			unknown = append(unknown, step)
		}
	}
	if len(unknown) > 0 {
		s.t.Errorf("in a recovery node %d passes the steps %v, at which its role was not killed", number, unknown)
	}
}

// TestStepsOfALostMajority kills the role of a survivor before and after everything that it keeps while it is made the only member of the store, and the command at one step after another. The same command goes on each time.
// In soak there is a second survivor, which promises the recovery and joins the first one then, and is killed at every step of that.
func TestStepsOfALostMajority(t *testing.T) {
	count := 2
	if soak.Enabled {
		count = 4
	}
	s := startSurvivors(t, count)
	c := s.c
	c.MustReeve(t, "node", "label", s.ids[1], "written=yes")
	s.lose()
	chosen := s.chosen()
	// A survivor starts etcd whenever its role begins: it is to end there only when it starts what the recovery has made.
	var starting sync.WaitGroup
	t.Cleanup(starting.Wait)
	all := make(map[int]*points)
	kill := func(number int, made string, steps ...string) {
		points := startPoints(t, c, "consensus")
		points.add([]int{number}, around(steps...)...)
		starting.Go(func() {
			_, _ = eventually.Try(points.ctx, manyKills, pointInterval, func() (bool, string) { return !slices.Contains(points.missing(), made), "" })
			points.add([]int{number}, around("start-etcd")...)
		})
		all[number] = points
	}
	for _, number := range s.alive { // what they did before is not of the recovery
		if err := os.Remove(s.passedFile(number)); err != nil {
			t.Fatal(err)
		}
	}
	kill(chosen, "after:adopt-remade", slices.Concat(stepsOfRecovery, stepsOfChosen)...)
	for _, number := range s.alive {
		if number != chosen {
			kill(number, "after:mark-replaced", stepsOfOther...)
		}
	}

	killed := 0
	eventually.True(t, manyKills, "one survivor is the only member", func() (bool, string) {
		if slices.ContainsFunc(slices.Collect(maps.Values(all)), func(points *points) bool { return slices.Contains(points.missing(), "after:promise-recovery") }) {
			s.chosen() // it would do without a survivor whose role has just ended
		}
		var come []string
		before := s.passed()
		command := s.begin("--cluster-id", s.cluster)
		// It is killed when a survivor has come further, and ends by itself in the end.
		_, _ = eventually.Try(t.Context(), fleet.Patience, pointInterval, func() (bool, string) {
			select {
			case <-command.Done():
				return true, ""
			default:
			}
			now := s.passed()
			if killed == 4 || len(now) == len(before) {
				return false, ""
			}
			_ = unix.Kill(-command.PID, unix.SIGKILL) // it may have just ended by itself
			for _, point := range before {            // a role that began again may have come to it again
				if n := slices.Index(now, point); n >= 0 {
					now = slices.Delete(now, n, n+1)
				}
			}
			come = now
			return true, ""
		})
		result := command.Wait(t, fleet.Patience)
		if result.Code == -1 {
			killed++
			t.Logf("the command was killed when the survivors had come to %v", come)
		}
		return result.Code == 0 || strings.Contains(result.Stderr, "the store has a quorum"), result.String()
	})
	if killed < 3 {
		t.Errorf("the command was killed %d times", killed)
	}
	starting.Wait()
	for number, points := range all {
		eventually.True(t, manyKills, "the survivor's role has ended at each step", func() (bool, string) {
			left := points.missing()
			return len(left) == 0, strings.Join(left, " ")
		})
		points.end()
		s.complete(number, points)
	}
	nodes := fleet.Await(t, c, 1, fleet.Patience, "the cluster takes writes", func(nodes []fleet.Node) bool {
		return c.Reeve(t, "node", "label", s.ids[1], "recovered=yes").Code == 0 && fleet.ByID(nodes, s.ids[1]).Labels["recovered"] == "yes"
	})
	if fleet.ByID(nodes, s.ids[1]).Labels["written"] != "yes" {
		t.Errorf("a write that was acknowledged is lost: %v", nodes)
	}
	result := c.MustReeve(t, "store", "status", "-o", "json")
	if !strings.Contains(result.Stdout, `"generation_id": "`) {
		t.Errorf("the store was not begun again: %s", result)
	}
	s.back()
	if soak.Enabled {
		s.twoOperators()
	}
	c.Down(t)
}

// generation is the one of the store of a node.
func (s *survivors) generation(number int) (id, seen string) {
	result := s.c.StartAlone(s.t, "store", "status", "-o", "json", "--dir", s.c.NodeDirectory(number)).Wait(s.t, fleet.Patience)
	var document struct {
		Store struct {
			GenerationID string `json:"generation_id"`
		} `json:"store"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		return "", result.String()
	}
	return document.Store.GenerationID, result.String()
}

// twoOperators has the majority lost again, and two operators recover it at once, each on another survivor, several times. There is exactly one new generation each time.
func (s *survivors) twoOperators() {
	t, c := s.t, s.c
	for round := 1; round <= 3; round++ {
		before, _ := s.generation(1)
		s.lose()
		s.chosen()
		var operators []*devcluster.Running
		for _, number := range s.alive {
			operators = append(operators, c.StartAlone(t, "store", "recover-quorum", "--cluster-id", s.cluster, "--dir", c.NodeDirectory(number)))
		}
		won := 0
		for n, operator := range operators {
			result := operator.Wait(t, 2*time.Minute)
			t.Logf("round %d, operator %d: %s", round, n+1, result)
			if result.Code == 0 {
				won++
			}
		}
		if won == 0 {
			// Each has the promise of another survivor: nobody is forced, and both are told so.
			c.MustReeve(t, "store", "recover-quorum", "--abandon")
			c.MustReeve(t, "store", "recover-quorum", "--cluster-id", s.cluster)
		}
		var now [3]string
		eventually.True(t, fleet.Patience, "both survivors are of one new generation", func() (bool, string) {
			var seen [3]string
			for _, number := range s.alive {
				now[number], seen[number] = s.generation(number)
			}
			return now[1] != "" && now[1] != before && now[1] == now[2], fmt.Sprint(seen)
		})
		s.back()
		for number := range s.ids {
			if id, seen := s.generation(number); id != now[1] {
				t.Errorf("round %d: the generation is %s, and on node %d %s", round, now[1], number, seen)
			}
		}
	}
}
