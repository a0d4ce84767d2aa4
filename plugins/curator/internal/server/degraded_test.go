package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TestProblemOfANode shows operators what a node says is wrong with it, for as long as it says so.
func TestProblemOfANode(t *testing.T) {
	c := newCluster(t)
	report := func(problem string) error {
		_, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{Problem: problem}})
		return err
	}
	for _, problem := range []string{"the address for metrics is taken", ""} {
		if err := report(problem); err != nil {
			t.Fatal(err)
		}
		if shown := c.nodeOf(c.id).GetProblem(); shown != problem {
			t.Errorf("operators see %q in place of %q", shown, problem)
		}
	}
	wantCode(t, report(strings.Repeat("p", limits.ReportedText+1)), codes.InvalidArgument, "status.problem")
}
