package steps_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// notStopped are the steps at which nobody is stopped here, and why not.
var notStopped = map[string]string{
	"give-up":       "a learner is given up when it has said nothing for two minutes: the tests of the consensus role do that",
	"note-damage":   "it takes damaged data to come to it: TestFalseMember of the consensus role ends a leader there",
	"sweep-tickets": "tickets that have expired are kept for some time, longer than a test takes: the tests of the curator's store do that",
	"sweep-issued":  "certificates expire after hours: the tests of the curator's store do that",
	"trim-audit":    "the audit log is trimmed when it holds thousands of entries: the tests of the curator's store do that",
}

// TestStepsOfConsensusAndCurator kills the roles consensus and curator before and after everything that they keep: while the store is made, while a node comes into it and leaves
// it, and the CA of the members is replaced for that, while users come and go, while machines register, are approved, come in and are removed, and while the CA is rotated. Each is started again by its core, and what was under way
// comes to its end. After each part the cluster takes writes still.
func TestStepsOfConsensusAndCurator(t *testing.T) {
	runAside(t)
	c := newCluster(t, false) // The test calls its role lighthouse, so it is in the test's own network.
	s := &stepping{t: t, c: c, began: time.Now()}
	defer s.explain()
	s.firstStart()
	s.grow()
	for _, part := range []func(){s.members, s.replacement, s.snapshots, s.users, s.machines, s.rotation} {
		part()
		s.writes.through(t)
	}
	s.finish()
}

// explain shows what the cluster has of machines that come, if the test has failed: what it was asked for, and what it keeps.
func (s *stepping) explain() {
	if !s.t.Failed() {
		return
	}
	for _, arguments := range [][]string{{"ticket", "list", "-o", "json"}, {"audit", "--limit", "60"}} {
		s.t.Log(s.c.Reeve(s.t, arguments...))
	}
}

// stepping is the test under way.
type stepping struct {
	t                  *testing.T
	c                  *devcluster.Cluster
	began              time.Time
	consensus, curator *points
	writes             *writes
	first, fourth      string
	tickets            int
}

// part says how long a part took.
func (s *stepping) part(name string) func() {
	began := time.Now()
	s.t.Logf("%s begins after %s", name, time.Since(s.began).Round(time.Millisecond))
	return func() { s.t.Logf("%s took %s", name, time.Since(began).Round(time.Millisecond)) }
}

// firstStart makes the cluster. Its core is ended when the volume is there and nothing runs yet, so that the points can be written down.
func (s *stepping) firstStart() {
	defer s.part("the first start")()
	t, c := s.t, s.c
	c.WriteParameters(t, func(parameters *nodev1.Parameters) {
		failures := uint32(1000)
		// At another address after each start, all of them could not be found any more by who has none of its own.
		for _, role := range parameters.GetBootstrap().GetRoles() {
			if role.GetRole() == "curator" {
				role.Configuration = s.listen(1)
			}
		}
		parameters.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: &failures}}
	})
	fleet.AwaitKilledAt(t, c, c.Programs.Reeved(), c.Path("reeved.yaml"), "consume-parameters")
	if err := os.Remove(c.Path("reeved.log")); err != nil { // it may be another user's
		t.Fatal(err)
	}
	s.consensus, s.curator = startPoints(t, c, "consensus"), startPoints(t, c, "curator")
	s.consensus.add([]int{1}, around(
		"mark-forming", "write-peer-key", "write-peer-ca", "write-peer-certificate", "start-etcd", "make-root-role", "make-root", "grant-root", "enable-authorization",
		"share-authority", "give-number", "make-role", "confine-role", "make-user", "confine-user", "mark-complete")...)
	s.curator.add([]int{1}, around("create")...)
	c.MustReeve(t, "dev", "up", "--detach", "--timeout", "2m")
	s.first = fleet.ID(t, c, 1)
	s.none(s.consensus, s.curator)
	// Later, since the curator's "create" has no "after" where the store ends before it answers.
	s.consensus.add([]int{1}, around("make-fence", "grant-fence", "delete-fence")...)
	eventually.True(t, manyKills, "the store has ended around its fences", func() (bool, string) {
		left := s.consensus.missing()
		if len(left) == 0 {
			return true, ""
		}
		// Each start is a leadership, which makes a fence.
		return false, fmt.Sprint(left, c.Reeve(t, "node", "role", "restart", s.first, "consensus"))
	})
	s.consensus.keep(1, 2, 3)
}

// listen is the configuration of the curator of a node, which keeps its address.
func (s *stepping) listen(number int) string {
	return `{"listen":"` + fleet.FreeAddress(s.t, "127.0.0."+strconv.Itoa(number)) + `"}`
}

// none fails the test if there are points that were not come to.
func (s *stepping) none(all ...*points) {
	s.t.Helper()
	for _, points := range all {
		if missing := points.missing(); len(missing) > 0 {
			s.t.Fatalf("%s has not come to %v", points.role, missing)
		}
	}
}

// grow adds three nodes, of which the last is to have no member of the store.
func (s *stepping) grow() {
	defer s.part("three more nodes")()
	t, c := s.t, s.c
	s.curator.add([]int{1}, around("incarnate")...)
	eventually.True(t, fleet.Patience, "four nodes are up", func() (bool, string) {
		result := c.Reeve(t, "dev", "up", "--nodes", "4", "--detach")
		return result.Code == 0, result.String()
	})
	s.fourth = fleet.ID(t, c, 4)
	for _, number := range []int{2, 3} {
		c.MustReeve(t, "node", "role", "add", fleet.ID(t, c, number), "curator", "--config", fleet.Configuration(t, c, s.listen(number)))
	}
	fleet.Await(t, c, 1, fleet.Patience, "three members of the store", s.three)
	s.writes = startWrites(t, c, s.first)
}

// three reports whether the first three nodes are the members of the store, and well.
func (s *stepping) three(nodes []fleet.Node) bool {
	voters := 0
	for _, node := range nodes {
		if node.Store == nil {
			continue
		}
		if node.ID == s.fourth || node.Store.MemberID == "" || node.Store.Learner || node.Store.Step != "" {
			return false
		}
		voters++
	}
	return voters == 3
}

// manyKills is how long what is killed over and over may take. It only turns a hang into a failure: each kill costs the start of a role, and a part has up to thirty of them.
const manyKills = 10 * time.Minute

// insist runs a command, again and again, until it is done: a curator that is killed does not answer, and nobody can tell whether it has done what it was asked.
func (s *stepping) insist(what string, done func() (bool, string), arguments ...string) {
	s.t.Helper()
	var result devcluster.Result
	eventually.True(s.t, manyKills, what, func() (bool, string) {
		if ok, seen := done(); ok {
			return true, seen
		}
		if len(arguments) > 0 {
			result = s.c.Reeve(s.t, arguments...)
		}
		ok, seen := done()
		return ok, result.String() + "\n" + seen
	})
}

// nodes says of all nodes whether they are as they should be.
func (s *stepping) nodes(as func([]fleet.Node) bool) func() (bool, string) {
	return func() (bool, string) {
		nodes, seen := fleet.List(s.t, s.c, 1)
		return nodes != nil && as(nodes), seen
	}
}

// members has the fourth node come into the store and leave it, until everybody was killed at every step of that.
func (s *stepping) members() {
	defer s.part("members that come and go")()
	t, c := s.t, s.c
	voters, all := []int{1, 2, 3}, []int{1, 2, 3, 4}
	s.consensus.add(voters, around("announce", "issue-peer-certificate", "add-learner", "promote", "note-removal", "remove-member", "finish-removal", "note-absence", "tell",
		"prepare-authority", "activate-authority", "retire-authority", "follow-authority")...)
	s.consensus.add([]int{4}, around("mark-joining", "write-peer-key", "write-peer-ca", "write-peer-certificate", "begin-log", "start-etcd", "mark-complete", "move-member",
		"mark-replaced", "put-aside", "mark-removed", "delete-member", "hand-over")...)
	s.curator.add(all[:3], around("add-role", "remove-role", "role-left", "put-status", "beat", "note-issued", "other-change", "append-audit", "campaign")...)
	for cycle := 1; len(s.consensus.missing()) > 0 || slices.ContainsFunc(s.curator.missing(), func(point string) bool { return strings.Contains(point, "role") }); cycle++ {
		if cycle > 20 {
			s.none(s.consensus, s.curator)
		}
		t.Logf("cycle %d: left are %v and %v", cycle, s.consensus.missing(), s.curator.missing())
		s.join(fleet.FreeAddress(t, "127.0.0.4"))
		if slices.ContainsFunc(s.consensus.missing(), func(point string) bool { return strings.HasSuffix(point, "move-member") }) {
			s.join(fleet.FreeAddress(t, "127.0.0.4")) // at another address
		}
		if slices.ContainsFunc(s.consensus.missing(), func(point string) bool { return strings.HasSuffix(point, "hand-over") }) {
			s.lead()
		}
		s.leave()
	}
	fleet.Await(t, c, 1, fleet.Patience, "three members of the store", s.three)
}

// join has the fourth node have a member of the store that votes, at an address.
func (s *stepping) join(address string) {
	s.t.Helper()
	file := fleet.Configuration(s.t, s.c, `{"peerListen":"`+address+`"}`)
	given := false
	s.insist("the fourth node has a member that votes", func() (bool, string) {
		ok, seen := s.nodes(func(nodes []fleet.Node) bool {
			node := fleet.ByID(nodes, s.fourth)
			return given && node.Store != nil && node.Store.MemberID != "" && !node.Store.Learner && node.Store.Step == "" && node.Role("consensus").State == "Ready"
		})()
		given = true
		return ok, seen
	}, "node", "role", "add", s.fourth, "consensus", "--config", file, "--wait=false")
}

// leave takes the member of the fourth node out of the store.
func (s *stepping) leave() {
	s.t.Helper()
	s.insist("the fourth node has no member", s.nodes(func(nodes []fleet.Node) bool {
		node := fleet.ByID(nodes, s.fourth)
		return node.ID != "" && node.Store == nil && !node.Has("consensus") && node.Role("consensus").State == ""
	}), "node", "role", "remove", s.fourth, "consensus", "--wait=false")
}

// lead has the member of the fourth node lead the store: whoever leads in its place is killed.
func (s *stepping) lead() {
	s.t.Helper()
	t, c := s.t, s.c
	eventually.True(t, fleet.Patience, "the member of the fourth node leads", func() (bool, string) {
		for number := 1; number <= 4; number++ {
			result := c.StartAlone(t, "store", "status", "-o", "json", "--dir", c.NodeDirectory(number)).Wait(t, time.Minute)
			store, err := storeOf(result)
			if err != nil || store.MemberID == "" || store.MemberID != store.LeaderID {
				continue
			}
			if number == 4 {
				return true, ""
			}
			status, _ := fleet.Status(t, c, number)
			for _, process := range fleet.Instance(t, c, status.Node.ID, "consensus") { // none, if it has just ended at a point
				s.consensus.kill(number, process)
			}
			return false, result.String()
		}
		return false, "nobody leads"
	})
}

// storeOf reads what `reeve store status -o json` shows.
func storeOf(result devcluster.Result) (store struct {
	MemberID string `json:"member_id"`
	LeaderID string `json:"leader_id"`
}, err error) {
	var document struct {
		Store json.RawMessage `json:"store"`
	}
	if err = json.Unmarshal([]byte(result.Stdout), &document); err == nil {
		err = json.Unmarshal(document.Store, &store)
	}
	return store, err
}

// users has a third party's ConsensusUser come and go.
func (s *stepping) users() {
	defer s.part("a user that goes")()
	t, c := s.t, s.c
	s.consensus.add([]int{1, 2, 3}, around("remove-user", "remove-role", "wipe-keys", "take-number-back")...)
	for cycle := 1; len(s.consensus.missing()) > 0; cycle++ {
		if cycle > 20 {
			s.none(s.consensus)
		}
		t.Logf("cycle %d: left are %v", cycle, s.consensus.missing())
		listed := func() (bool, string) {
			result := c.Reeve(t, "plugin", "list")
			return result.Code == 0 && strings.Contains(result.Stdout, "lighthouse"), result.String()
		}
		s.insist("the plugin is there", listed, "plugin", "add", "--approve", c.Programs.Lighthouse())
		s.insist("its role is ready", s.nodes(func(nodes []fleet.Node) bool { return fleet.ByID(nodes, s.first).Role("lighthouse").State == "Ready" }),
			"node", "role", "add", s.first, "lighthouse", "--wait=false")
		eventually.True(t, fleet.Patience, "it counts", func() (bool, string) {
			status, seen := fleet.Status(t, c, 1)
			answer, err := http.Post(status.Role("lighthouse").URL(), "", nil)
			if err != nil {
				return false, err.Error() + " " + seen
			}
			defer answer.Body.Close()
			return answer.StatusCode == http.StatusOK, answer.Status
		})
		s.insist("the plugin is gone", func() (bool, string) {
			result := c.Reeve(t, "plugin", "list")
			return result.Code == 0 && !strings.Contains(result.Stdout, "lighthouse"), result.String()
		}, "plugin", "remove", "lighthouse", "--remove-roles", "--wipe", "--yes")
		s.still(s.consensus)
	}
}

// still waits until all points were come to, or none for some time.
func (s *stepping) still(points *points) {
	last, since := len(points.missing()), time.Now()
	_, _ = eventually.Try(s.t.Context(), time.Minute, pointInterval, func() (bool, string) {
		left := len(points.missing())
		if left != last {
			last, since = left, time.Now()
		}
		return left == 0 || time.Since(since) > 5*time.Second, ""
	})
}

// machines has one machine come in, be copied, and go, and another one be refused.
func (s *stepping) machines() {
	defer s.part("machines that come and go")()
	t, c := s.t, s.c
	curators := []int{1, 2, 3}
	s.curator.add(curators, around("register", "approve-node", "commit", "incarnate")...)
	parameters, core := s.machine(5)
	var id string
	s.insist("the machine is known", s.nodes(func(nodes []fleet.Node) bool {
		n := slices.IndexFunc(nodes, func(node fleet.Node) bool { return node.State == "New" })
		if n >= 0 {
			id = nodes[n].ID
		}
		return n >= 0
	}))
	s.insist("the machine is approved", s.nodes(func(nodes []fleet.Node) bool { return fleet.ByID(nodes, id).State != "New" }), "node", "approve", id, "--yes")
	home := s.nodes(func(nodes []fleet.Node) bool {
		node := fleet.ByID(nodes, id)
		return node.State == "Up" && node.Healthy && node.Membership != nil && node.Membership.State == "Home" && !strings.Contains(node.Problem, "was refused")
	})
	eventually.True(t, fleet.Patience, "the machine is a node", home)

	// An older copy of it is refused, and becomes the node when an operator says so.
	stop := func() {
		t.Helper()
		core.Signal(t, 15)
		if result := core.Wait(t, time.Minute); result.Code != 0 {
			t.Fatal(result)
		}
	}
	directory := c.NodeDirectory(5)
	stop()
	for _, name := range []string{"system", "data"} {
		s.run("/bin/cp", "-a", filepath.Join(directory, name), filepath.Join(directory, "older-"+name))
	}
	for range 2 {
		core = fleet.StartCore(t, c, parameters)
		fleet.AwaitStatus(t, c, 5, "the node is there again", func(status devcluster.Status) bool { return status.Membership.State == "Home" })
		stop()
	}
	for _, name := range []string{"system", "data"} {
		s.run("/bin/rm", "-r", filepath.Join(directory, name))
		s.run("/bin/mv", filepath.Join(directory, "older-"+name), filepath.Join(directory, name))
	}
	s.curator.add(curators, around("note-refused")...)
	core = fleet.StartCore(t, c, parameters)
	eventually.True(t, fleet.Patience, "the copy is refused", s.nodes(func(nodes []fleet.Node) bool {
		return strings.Contains(fleet.ByID(nodes, id).Problem, "was refused") && len(s.curator.missing()) == 0
	}))
	s.insist("the copy is the node", home, "node", "accept", id)

	s.curator.add(curators, around("decommission-node", "node-decommissioned")...)
	gone := func(id string) func() (bool, string) {
		return s.nodes(func(nodes []fleet.Node) bool { return fleet.ByID(nodes, id).State == "Decommissioned" })
	}
	s.insist("the node is decommissioned", gone(id), "node", "decommission", id, "--yes", "--wait=false")
	fleet.AwaitDisowned(t, c, 5)
	stop()

	// A machine that nobody wants.
	_, core = s.machine(6)
	s.insist("the other machine is known", s.nodes(func(nodes []fleet.Node) bool {
		n := slices.IndexFunc(nodes, func(node fleet.Node) bool { return node.State == "New" })
		if n >= 0 {
			id = nodes[n].ID
		}
		return n >= 0
	}))
	s.curator.add(curators, around("delete-node")...)
	s.insist("the other machine is deleted", gone(id), "node", "delete", id, "--yes")
	eventually.True(t, fleet.Patience, "the other machine has erased what it had", func() (bool, string) {
		content, err := os.ReadFile(filepath.Join(c.NodeDirectory(6), "reeved.log"))
		return err == nil && strings.Contains(string(content), "all that it had of it is erased"), string(content)
	})
	core.Signal(t, 15)
	core.Wait(t, time.Minute)

	s.none(s.curator)
}

func (s *stepping) run(program string, arguments ...string) {
	s.t.Helper()
	if result := s.c.Run(s.t, program, arguments...); result.Code != 0 {
		s.t.Fatal(result)
	}
}

// ticket makes a ticket, and returns its file.
func (s *stepping) ticket(arguments ...string) string {
	s.t.Helper()
	var file string
	eventually.True(s.t, fleet.Patience, "there is a ticket", func() (bool, string) {
		s.tickets++
		file = filepath.Join(s.c.Home, "ticket"+strconv.Itoa(s.tickets))
		result := s.c.Reeve(s.t, append([]string{"ticket", "create", "--role", "hostsfile", "--output-file", file}, arguments...)...)
		return result.Code == 0, result.String()
	})
	return file
}

// machine starts a core that registers with a ticket, and returns its parameters.
func (s *stepping) machine(number int) (string, *devcluster.Running) {
	s.t.Helper()
	t, c := s.t, s.c
	parameters := fleet.Initialize(t, c, number, s.ticket())
	return parameters, fleet.StartCore(t, c, parameters)
}

// rotation rotates the CA of the cluster, and kills whoever does a step before and after it.
func (s *stepping) rotation() {
	defer s.part("the rotation of the CA")()
	next := map[string]string{"prepare": "activate", "activate": "retire", "retire": "prepare"}
	for _, step := range []string{"prepare", "activate", "retire"} {
		s.curator.add([]int{1, 2, 3}, around("rotate-ca")...)
		eventually.True(s.t, manyKills, step, func() (bool, string) {
			result := s.c.Reeve(s.t, "cert", "rotate", step)
			return result.Code == 0 || strings.Contains(result.Stderr, "the step that comes next is "+next[step]), result.String()
		})
		s.none(s.curator)
	}
}

// finish looks at what has become of the cluster.
func (s *stepping) finish() {
	t, c := s.t, s.c
	s.writes.end()
	nodes := fleet.Await(t, c, 2, fleet.Patience, "the cluster is as it was", func(nodes []fleet.Node) bool {
		for _, node := range nodes {
			if node.State != "Decommissioned" && (node.State != "Up" || !node.Healthy || strings.Contains(node.Problem, "was refused") || node.Membership.State != "Home" || node.Role("hostsfile").State != "Ready") {
				return false
			}
		}
		return s.three(nodes)
	})
	seen := make(map[string]int)
	for _, node := range nodes {
		seen[node.ID]++
		if seen[node.ID] > 1 {
			t.Errorf("two records of node %s", node.ID)
		}
	}
	if len(nodes) != 6 {
		t.Errorf("six machines have registered, and there are %d records: %v", len(nodes), nodes)
	}
	acknowledged := s.writes.acknowledged.Load()
	if written, err := strconv.ParseInt(fleet.ByID(nodes, s.first).Labels["written"], 10, 64); err != nil || written < acknowledged {
		t.Errorf("write %d was acknowledged, and %d is there (%v)", acknowledged, written, err)
	}
	ends := 0
	for _, points := range []*points{s.consensus, s.curator} {
		points.end()
		content, err := os.ReadFile(points.steps(1))
		if err != nil {
			t.Fatal(err)
		}
		done, count := points.done()
		ends += count
		for _, step := range strings.Fields(string(content)) {
			if notStopped[step] == "" && !slices.Contains(stepsOfRecovery, step) && !slices.Contains(stepsOfRestore, step) && !slices.Contains(done, step) {
				t.Errorf("%s was not killed before and after the step %s, which is one of its own", points.role, step)
			}
		}
		t.Logf("%s was killed before and after %d steps, %d times in all", points.role, len(done), count)
	}
	t.Logf("%d kills; %d writes were tried and %d was the last that was acknowledged, the longest time between two was %s",
		ends, s.writes.tried.Load(), acknowledged, s.writes.longest.Round(time.Millisecond))
	c.Down(t)
}
