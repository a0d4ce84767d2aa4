package steps_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// stepsOfRestore are those by which the consensus role makes its member of a snapshot, and which it has for nothing else.
var stepsOfRestore = []string{"receive-snapshot", "lay-restored"}

// inGate says of each step of a role in a restore at which step of its kind the gate kills in its place: at itself, or at another one. Soak kills at all of them.
var inGate = map[string]map[string]string{
	"consensus": {
		"receive-snapshot": "receive-snapshot", "lay-restored": "lay-restored", "begin-generation": "begin-generation", "start-etcd": "start-etcd",
		"mark-forming": "mark-forming", "mark-complete": "mark-complete",
		"write-peer-key": "write-peer-key", "write-peer-ca": "write-peer-key", "write-peer-certificate": "write-peer-key",
		"share-authority": "share-authority", "follow-authority": "share-authority", "move-member": "share-authority", "tell": "share-authority",
		"make-fence": "grant-fence", "grant-fence": "grant-fence", "delete-fence": "grant-fence",
	},
	"curator": {
		"other-change": "other-change", "note-issued": "note-issued", "incarnate": "incarnate",
		"put-status": "incarnate", "beat": "incarnate", "append-audit": "incarnate", "campaign": "incarnate",
	},
}

// restoring is a cluster of one node that is restored from a snapshot, again and again.
type restoring struct {
	t *testing.T
	c *devcluster.Cluster
	// former is the node that the snapshot knows.
	former string
	// log is where the core says which steps it takes.
	log string
	// command is what restores the cluster.
	command []string
}

// startRestoring makes the cluster and the snapshot, and loses the machine.
func startRestoring(t *testing.T) *restoring {
	t.Helper()
	c := newCluster(t, runAside(t))
	allowCrashes(t, c)
	c.MustReeve(t, "dev", "up", "--detach")
	r := &restoring{t: t, c: c, former: fleet.ID(t, c, 1), log: filepath.Join(c.Home, "steps")}
	status, _ := fleet.Status(t, c, 1)
	c.MustReeve(t, "node", "label", r.former, "written=before")
	file := filepath.Join(c.Home, "snapshot")
	c.MustReeve(t, "store", "snapshot", file, "--unencrypted")
	c.MustReeve(t, "node", "label", r.former, "written=later")
	c.MustReeve(t, "dev", "down")
	r.command = []string{c.Programs.Reeved(), "restore", "--parameters", c.Path("reeved.yaml"), "--snapshot", file, "--cluster-id", status.Cluster.ID, "--again"}
	r.clear()
	return r
}

// clear makes the machine an empty one.
func (r *restoring) clear() {
	r.t.Helper()
	for _, path := range []string{r.c.Path("system"), r.c.Path("data"), r.log} {
		if err := os.RemoveAll(path); err != nil {
			r.t.Fatal(err)
		}
	}
}

// run runs the command, in whose environment there is more.
func (r *restoring) run(environment ...string) devcluster.Result {
	r.t.Helper()
	command := r.c.StartProgram(r.t, "/usr/bin/env", slices.Concat(environment, r.command)...)
	select {
	case <-command.Done():
	case <-time.After(manyKills):
		out, errors := command.Output()
		r.t.Fatalf("the restore with %v has not ended:\n%s\n%s", environment, out, errors)
	}
	return command.Wait(r.t, time.Second)
}

// killedAt has the core end at a step, at its n-th time, and says whether it came to it.
func (r *restoring) killedAt(step string, n int) bool {
	r.t.Helper()
	result := r.run("REEVE_FAILPOINT=" + step + ":" + strconv.Itoa(n))
	if result.Code != -1 && result.Code != 0 {
		r.t.Fatalf("the restore ended otherwise than at the step %s: %s", step, result)
	}
	return result.Code == -1
}

// mustBeKilledAt has the core end at a step.
func (r *restoring) mustBeKilledAt(step string) {
	r.t.Helper()
	if !r.killedAt(step, 1) {
		r.t.Fatalf("the restore has not come to the step %s", step)
	}
}

// record restores the cluster with nobody killed, and returns the steps of the core, and those of each role.
func (r *restoring) record() (core []string, roles map[string][]string) {
	r.t.Helper()
	if result := r.run("REEVE_FAILPOINT_LOG=" + r.log); result.Code != 0 {
		r.t.Fatal(result)
	}
	read := func(path string) []string {
		content, err := os.ReadFile(path)
		if err != nil {
			r.t.Fatal(err)
		}
		return strings.Fields(string(content))
	}
	roles = make(map[string][]string)
	for role := range inGate {
		var steps []string
		for _, point := range read(r.c.Path("data", "roles", role, "failpoint-passed")) {
			_, step, _ := strings.Cut(point, ":")
			steps = append(steps, step)
		}
		slices.Sort(steps)
		roles[role] = slices.Compact(steps)
	}
	core = read(r.log)
	r.clear()
	return core, roles
}

// ofFile says that a step of the core belongs to a file, of which there are many.
func ofFile(step string) bool { return strings.Contains(step, ":") }

// coreKills are the steps of a record at which the core is killed one after another in one restore: all that have a name of their own, and the first one before and after a file is replaced.
func coreKills(record []string) (steps []string) {
	kinds := make(map[string]bool)
	for _, step := range record {
		kind := step
		if ofFile(step) {
			kind, _, _ = strings.Cut(step, ":")
		}
		if !kinds[kind] {
			kinds[kind] = true
			steps = append(steps, step)
		}
	}
	return steps
}

// roleKills are those at which a role is killed.
func (r *restoring) roleKills(role string, record []string) (steps []string) {
	r.t.Helper()
	for step, by := range inGate[role] {
		if by == step && !slices.Contains(record, step) {
			r.t.Errorf("%s has not passed the step %s in a restore", role, step)
		}
	}
	for _, step := range record {
		by := inGate[role][step]
		if by == "" {
			r.t.Errorf("%s passes the step %s in a restore, and inGate does not say at which step it is killed in its place", role, step)
		}
		if soak.Enabled || by == step {
			steps = append(steps, step)
		}
	}
	return steps
}

// finish runs the command to its end: it goes on, or has nothing left to do. The node is the restored one then.
func (r *restoring) finish() {
	r.t.Helper()
	t, c := r.t, r.c
	if result := r.run(); result.Code != 0 && !strings.Contains(result.Stderr, "was restored from this snapshot already") {
		t.Fatal(result)
	}
	c.MustReeve(t, "dev", "up", "--detach")
	restored := fleet.ID(t, c, 1)
	nodes := fleet.Await(t, c, 1, fleet.Patience, "the cluster is there", func(nodes []fleet.Node) bool { return fleet.ByID(nodes, restored).Healthy })
	if len(nodes) != 2 || fleet.ByID(nodes, r.former).Labels["written"] != "before" {
		t.Errorf("there are to be the former node, as it was, and one new one: %v", nodes)
	}
	// The curator may come to a step of its list only with this change, and end there.
	eventually.True(t, fleet.Patience, "the restored store takes a change", func() (bool, string) {
		result := c.Reeve(t, "node", "label", restored, "written=now")
		return result.Code == 0, result.String()
	})
	if result := c.MustReeve(t, "store", "status", "-o", "json"); !regexp.MustCompile(`"generation": *[0-9]{10},`).MatchString(result.Stdout) {
		t.Errorf("the store was never begun again: %s", result)
	}
}

// TestStepsOfARestore restores a cluster from a snapshot, and kills the core, and the roles consensus and curator, before and after everything that they keep meanwhile. The same command goes on each time: there is one new node,
// and the store was begun again. The steps are those that a restore takes in which nobody is killed. The gate kills at one of each kind.
func TestStepsOfARestore(t *testing.T) {
	r := startRestoring(t)
	c := r.c
	core, recorded := r.record()
	at := coreKills(core)
	formed := slices.Index(at, "enter-formed")
	if formed < 0 || at[len(at)-1] != "close-volume" {
		t.Fatalf("the core passes other steps in a restore than it did: %v", at)
	}
	t.Logf("core: %v; roles: %v", at, recorded)
	for _, step := range at[:formed] {
		r.mustBeKilledAt(step)
	}
	var roles []*points
	for role, steps := range recorded {
		points := startPoints(t, c, role)
		points.add([]int{1}, around(r.roleKills(role, steps)...)...)
		roles = append(roles, points)
	}
	for _, step := range at[formed:] {
		r.mustBeKilledAt(step)
	}
	r.finish()
	restored := fleet.ID(t, c, 1)
	for _, points := range roles {
		// The command ends when the node is Home; the roles have more to do then. What they do when they start they do again.
		eventually.True(t, manyKills, points.role+" has ended at each step", func() (bool, string) {
			left := points.missing()
			if len(left) == 0 {
				return true, ""
			}
			return false, strings.Join(left, " ") + c.Reeve(t, "node", "role", "restart", restored, points.role).String()
		})
		points.end()
	}
	c.MustReeve(t, "node", "label", restored, "written=still")
	c.Down(t)
	if soak.Enabled {
		r.filesOfCore(core)
	}
}

// filesOfCore has the core end before and after it replaces each file, in a restore for each.
func (r *restoring) filesOfCore(record []string) {
	times := make(map[string]int)
	for _, step := range record {
		if !ofFile(step) {
			continue
		}
		times[step]++
		for try := 1; ; try++ {
			r.clear()
			if r.killedAt(step, times[step]) {
				break
			}
			if try == 5 { // the last ones may come after the command has ended
				r.t.Errorf("five restores have not come to the step %s for the %d. time", step, times[step])
				break
			}
		}
		r.finish()
		r.c.Down(r.t)
	}
}
