package steps_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// stepsOfRestore are those by which the consensus role makes its member of a snapshot, and which it has for nothing else.
var stepsOfRestore = []string{"receive-snapshot", "lay-restored"}

// TestStepsOfARestore restores a cluster from a snapshot, and kills the core, and the roles consensus and curator, before and after everything that they keep meanwhile. The same command goes on each time: there is one new node,
// and the store was begun again.
func TestStepsOfARestore(t *testing.T) {
	c := newCluster(t)
	allowCrashes(t, c)
	c.MustReeve(t, "dev", "up", "--detach")
	first := fleet.ID(t, c, 1)
	status, _ := fleet.Status(t, c, 1)
	c.MustReeve(t, "node", "label", first, "written=before")
	file := filepath.Join(c.Home, "snapshot")
	c.MustReeve(t, "store", "snapshot", file, "--unencrypted")
	c.MustReeve(t, "node", "label", first, "written=later")
	c.MustReeve(t, "dev", "down")
	for _, directory := range []string{"system", "data"} {
		if err := os.RemoveAll(c.Path(directory)); err != nil {
			t.Fatal(err)
		}
	}

	arguments := []string{c.Programs.Reeved(), "restore", "--parameters", c.Path("reeved.yaml"), "--snapshot", file, "--cluster-id", status.Cluster.ID, "--again"}
	killedAt := func(steps ...string) {
		t.Helper()
		for _, step := range steps {
			command := c.StartProgram(t, "/usr/bin/env", append([]string{"REEVE_FAILPOINT=" + step + ":1"}, arguments...)...)
			select {
			case <-command.Done():
			case <-time.After(manyKills):
				out, errors := command.Output()
				t.Fatalf("the restore has not come to the step %s:\n%s\n%s", step, out, errors)
			}
			if result := command.Wait(t, time.Second); result.Code != -1 {
				t.Fatalf("the restore ended otherwise than at the step %s: %s", step, result)
			}
		}
	}
	killedAt("make-configuration", "begin-format", "mark-volume", "forget-keys", "consume-parameters")
	consensus, curator := startPoints(t, c, "consensus"), startPoints(t, c, "curator")
	consensus.add([]int{1}, around(append([]string{"mark-forming", "start-etcd", "begin-generation", "share-authority", "mark-complete"}, stepsOfRestore...)...)...)
	curator.add([]int{1}, around("other-change")...)
	killedAt("enter-formed")
	if missing := consensus.missing(); len(missing) > 0 {
		t.Errorf("the consensus role has not come to %v", missing)
	}
	killedAt("enter-member")
	if missing := curator.missing(); len(missing) > 0 {
		t.Errorf("the curator has not come to %v", missing)
	}
	consensus.end()
	curator.end()
	if result := c.Run(t, "/usr/bin/env", arguments...); result.Code != 0 {
		t.Fatal(result)
	}

	c.MustReeve(t, "dev", "up", "--detach")
	restored := fleet.ID(t, c, 1)
	nodes := fleet.Await(t, c, 1, fleet.Patience, "the cluster is there", func(nodes []fleet.Node) bool { return fleet.ByID(nodes, restored).Healthy })
	if len(nodes) != 2 || fleet.ByID(nodes, first).Labels["written"] != "before" {
		t.Errorf("there are to be the former node, as it was, and one new one: %v", nodes)
	}
	c.MustReeve(t, "node", "label", restored, "written=now")
	if result := c.MustReeve(t, "store", "status", "-o", "json"); !regexp.MustCompile(`"generation": *[0-9]{10},`).MatchString(result.Stdout) {
		t.Errorf("the store was never begun again: %s", result)
	}
	c.Down(t)
}
