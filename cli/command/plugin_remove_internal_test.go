package command

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TestNotRemoved says what to do when a plugin was not removed, which is not to give an option that was given.
func TestNotRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		code    codes.Code
		request *clusterv1.RemovePluginRequest
		exit    fault.Code
		says    string
	}{
		"nodes have its roles":        {codes.FailedPrecondition, &clusterv1.RemovePluginRequest{}, fault.Refused, "why. Give --remove-roles"},
		"a part that was refused":     {codes.FailedPrecondition, &clusterv1.RemovePluginRequest{RemoveRoles: true}, fault.Refused, "why"},
		"out of time":                 {codes.DeadlineExceeded, &clusterv1.RemovePluginRequest{RemoveRoles: true}, fault.Unreachable, "why. A part of the nodes may have lost its roles already: the same command goes on"},
		"out of time, with no change": {codes.DeadlineExceeded, &clusterv1.RemovePluginRequest{RemoveRoles: true, DryRun: true}, fault.Unreachable, "why. Run `reeve status`"},
	} {
		test.request.Name = "lamp"
		err := notRemoved(status.Error(test.code, "why"), test.request)
		if rest, ok := strings.CutPrefix(err.Error(), "cannot remove plugin lamp: "); fault.CodeOf(err) != test.exit || !ok || !strings.HasPrefix(rest, test.says) || test.says == "why" && rest != "why" {
			t.Errorf("%s: exit code %d, %v", name, fault.CodeOf(err), err)
		}
	}
}
