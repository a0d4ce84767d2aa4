package steps_test

import (
	"context"
	"sync"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/suite"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

var shared suite.Suite

func TestMain(m *testing.M) { shared.Main(m, "../..", "rs") }

// withFailpoints builds the programs of newCluster, once for all tests.
var withFailpoints = sync.OnceValues(func() (*build.Programs, error) { return shared.Programs.WithFailpoints(context.Background()) })

// newCluster is one whose processes end at steps that they are told.
func newCluster(t *testing.T, ownNetwork bool) *devcluster.Cluster {
	t.Helper()
	programs, err := withFailpoints()
	if err != nil {
		t.Fatal(err)
	}
	return devcluster.New(t, devcluster.Options{Programs: programs, Base: shared.Base, User: shared.Ordinary, OwnNetwork: ownNetwork})
}

// runAside runs a test beside others if its cluster can have a network of its own. What these tests do is mostly to wait: for elections, and for members, which etcd counts as connected after five
// seconds only.
func runAside(t *testing.T) (ownNetwork bool) {
	if devcluster.LacksNamespaces() != "" {
		return false
	}
	t.Parallel()
	return true
}

// allowCrashes has a node start roles that are killed again and again.
func allowCrashes(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	c.WriteParameters(t, func(parameters *nodev1.Parameters) {
		failures := uint32(1000)
		parameters.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: &failures}}
	})
}
