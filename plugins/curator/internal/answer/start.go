package answer

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// RefusedStart returns the status with which the calls of a node's core are refused that is not the one which the cluster takes for the node: another machine
// with its key (twin) has called with the same number, or a later start of the node has. Nothing in it is of the caller but the number.
func RefusedStart(node string, number, known uint64, twin bool) error {
	message := fmt.Sprintf("a later start of node %s is known (number %d, this is number %d): this machine's disk is an older copy, or another machine has a copy of it; "+
		"switch the other one off, then have the next start of this one taken for the node (`reeve node accept %s`)", node, known, number, node)
	if twin {
		message = fmt.Sprintf("another machine with the key of node %s has called first, with the same number of its start (%d): switch off the one that is not to be the node, "+
			"then have the next start of the other one taken for it (`reeve node accept %s`)", node, number, node)
	}
	refused := status.New(codes.FailedPrecondition, message)
	if detailed, err := refused.WithDetails(&clusterv1.IncarnationRefused{Twin: twin, Known: known}); err == nil {
		refused = detailed
	}
	return &refusal{status: refused, reason: message}
}
