package server_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// TestProblemOfANode shows operators what a node says is wrong with it, a role that does not work among that, for as long as it says so; and that it says nothing at all.
func TestProblemOfANode(t *testing.T) {
	c := newCluster(t)
	if shown := c.nodeOf(c.id).GetProblem(); !strings.HasPrefix(shown, "it sends no heartbeats") {
		t.Errorf("operators see %q of a node that sends no heartbeats", shown)
	}
	report := func(problem string, roles ...*clusterv1.InstanceStatus) error {
		_, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{Problem: problem, Instances: roles}})
		return err
	}
	expect := func(want, problem string, roles ...*clusterv1.InstanceStatus) {
		t.Helper()
		_, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
		if err := errors.Join(err, report(problem, roles...)); err != nil {
			t.Fatal(err)
		}
		if shown := c.nodeOf(c.id).GetProblem(); shown != want {
			t.Errorf("operators see %q in place of %q", shown, want)
		}
	}
	expect("the address for metrics is taken", "the address for metrics is taken")
	expect("taken; role hostsfile is Failed: the path is a directory", "taken",
		&clusterv1.InstanceStatus{Role: "hostsfile", State: hostv1.InstanceState_INSTANCE_STATE_FAILED, Reason: "the path is a directory"})
	expect("", "")
	wantCode(t, report(strings.Repeat("p", limits.ReportedText+1)), codes.InvalidArgument, "status.problem")
}
