package steps_test

import (
	"os"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/suite"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

var shared suite.Suite

func TestMain(m *testing.M) { shared.Main(m, "../..", "rs") }

// newCluster is one whose processes end at steps that they are told.
func newCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	programs, err := shared.Programs.WithFailpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	options := devcluster.Options{Programs: programs, Base: shared.Base}
	if os.Geteuid() == 0 {
		options.User = shared.Ordinary
	}
	return devcluster.New(t, options)
}

// allowCrashes has a node start roles that are killed again and again.
func allowCrashes(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	c.WriteParameters(t, func(parameters *nodev1.Parameters) {
		failures := uint32(1000)
		parameters.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: &failures}}
	})
}
