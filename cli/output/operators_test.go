package output_test

import (
	"slices"
	"testing"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TestOperatorRevoked has the document of a revocation name what ends with it.
func TestOperatorRevoked(t *testing.T) {
	document := output.NewOperatorRevoked(&clusterv1.RevokeOperatorResponse{Tickets: []*clusterv1.Ticket{{Id: "0123"}}, WaitingNodes: []string{"reeve-1", "reeve-2"}}, true)
	if !slices.Equal(document.Tickets, []string{"0123"}) || !slices.Equal(document.WaitingNodes, []string{"reeve-1", "reeve-2"}) || !document.DryRun {
		t.Errorf("%+v", document)
	}
}
