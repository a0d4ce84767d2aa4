package histories_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/history"
)

// TestHistoryOfARestore takes a snapshot while clients write, lets them write on, and restores the cluster from it on one machine. What the restored cluster answers continues the history as it was at one
// moment of the snapshot: every write that was acknowledged before is there, and none that began after it.
func TestHistoryOfARestore(t *testing.T) {
	s := newScene(t, shared.OrdinaryCluster(t), 1)
	work, initial := s.workload(t, "r")
	stop := s.clients(work, 1, number(t, "REEVE_HISTORIES_SEED", 1))
	defer stop()
	h := work.history
	s.writes(t, h, enough)
	file := filepath.Join(s.cluster.Home, "snapshot")
	began := h.Now()
	s.cluster.MustReeve(t, "store", "snapshot", file, "--unencrypted")
	ended := h.Now()
	s.writes(t, h, enough)
	stop()
	before := h.Calls()

	status, _ := s.nodes[0].status.Get()
	cluster := status.GetCluster().GetClusterId()
	s.cluster.MustReeve(t, "dev", "down")
	for _, directory := range []string{"system", "data"} {
		if err := os.RemoveAll(s.cluster.Path(directory)); err != nil {
			t.Fatal(err)
		}
	}
	parameters := s.cluster.Path("reeved.yaml")
	if result := s.cluster.Run(t, s.cluster.Programs.Reeved(), "restore", "--parameters", parameters, "--snapshot", file, "--cluster-id", cluster, "--again"); result.Code != 0 {
		t.Fatal(result)
	}
	core := fleet.StartCore(t, s.cluster, parameters)
	status = s.nodes[0].await(t, "serves the cluster API", serves)
	restored := newAccess(t, "the restored curator", status.GetCluster(), devcluster.ReadKey(t, s.cluster.Path("owner.key")), address(status))
	defer restored.conn.Close()
	s.answers(t, restored)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	work.final(ctx, t, restored)
	calls := append(history.At(before, began, ended), h.Calls()[len(before):]...)
	for _, finding := range history.Check(calls, initial, checkWithin, pictures(t, 1)) {
		t.Errorf("%s: %s", finding.Verdict, finding.Problem)
	}
	core.Signal(t, 15)
	if result := core.Wait(t, patience); result.Code != 0 {
		t.Error(result)
	}
}
