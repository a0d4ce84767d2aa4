//go:build soak

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/softtpm"
)

// TestStepsOfASealedRestore restores a cluster on a machine whose volume is encrypted and whose secrets a TPM seals, and kills the core at every step of its own files and of its volume, alone or with its machine. The steps are
// those of a restore in which nobody is killed. The same command goes on each time, and the node starts unattended then. The roles are killed in a restore by e2e/steps.
func TestStepsOfASealedRestore(t *testing.T) {
	t.Parallel()
	tpm := softtpm.Start(t, suite.base)
	c := newSealed(t, few, by(tpm))
	before := startUp(t, c, fewRoles...)
	file, log := filepath.Join(c.Home, "snapshot"), filepath.Join(c.Home, "steps")
	c.MustReeve(t, "store", "snapshot", file)
	c.MustReeve(t, "node", "label", before.Node.ID, "written=later")
	empty := func() {
		t.Helper()
		stopCore(t, c)
		for _, path := range []string{c.Path("system"), c.Path("data"), c.Image()} {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	restore := func(variable string) devcluster.Result {
		t.Helper()
		return c.StartProgram(t, "/usr/bin/env", variable, buildFailpoints(t), "restore", "--parameters", c.Path("reeved.yaml"), "--snapshot", file, "--recovery-key", c.RecoveryKey(),
			"--cluster-id", before.Cluster.ID, "--again").Wait(t, 2*patience)
	}
	empty()
	if result := restore("REEVE_FAILPOINT_LOG=" + log); result.Code != 0 {
		t.Fatal(result)
	}
	at := slices.DeleteFunc(points(stepsOf(t, log), 0, true), ofNode)
	for _, step := range []string{"wrap-data-key", "write-recovery", "seal-cuk"} {
		if !slices.ContainsFunc(at, func(p point) bool { return p.step == step }) {
			t.Errorf("a restore has not come to the step %s: %v", step, at)
		}
	}
	empty()
	const done = "was restored from this snapshot already"
	killed := 0
	for n, at := range at {
		at.n = 1
		result := restore(at.variable())
		if result.Code != -1 && strings.Contains(result.Stderr, done) {
			break // the node was a member of its cluster when it was killed
		}
		if result.Code != -1 {
			t.Fatalf("the restore has not come to %s: %s", at, result)
		}
		killed++
		if n%2 == 0 {
			c.PowerOff(t)
			tpm.Restart(t)
		}
	}
	t.Logf("killed at %d of %d points: %v", killed, len(at), at)
	if member := slices.IndexFunc(at, func(p point) bool { return p.step == "enter-member" }); member < 0 || killed <= member {
		t.Errorf("it was killed at %d points, and entered its cluster at point %d", killed, member+1)
	}
	if result := restore("REEVE_FAILPOINT="); result.Code != 0 && !strings.Contains(result.Stderr, done) {
		t.Fatal(result)
	}
	after := startUp(t, c, fewRoles...)
	if after.Cluster.ID != before.Cluster.ID || after.Node.ID == before.Node.ID {
		t.Errorf("node %s of cluster %s was restored as node %s of cluster %s", before.Node.ID, before.Cluster.ID, after.Node.ID, after.Cluster.ID)
	}
	if s := after.Storage; !s.Recoverable || len(s.Weaknesses) != 0 {
		t.Errorf("the storage after it was killed: %+v", s)
	}
	recovered(t, c, c.RecoveryKey())
	if list := c.MustReeve(t, "node", "list", "-o", "json"); !strings.Contains(list.Stdout, before.Node.ID) || strings.Contains(list.Stdout, `"later"`) {
		t.Errorf("the former node is not known, or by what was written after the snapshot: %s", list)
	}
	stopCore(t, c)
}
