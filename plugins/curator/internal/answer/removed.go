package answer

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Removed returns the status with which every call of a node that is Decommissioned is refused: the tombstone that names it.
// generation is that of the store which has it; nil: it is the first one.
func Removed(node *clusterv1.NodeRecord, generation *consensusv1.StoreGeneration) error {
	reason := Tombstone(node)
	message := valid(fmt.Sprintf("node %s was removed from the cluster and is never again a member of it: %s", node.GetId(), reason))
	refused := status.New(codes.PermissionDenied, message)
	if detailed, err := refused.WithDetails(&clusterv1.NodeRemoved{
		NodeId: node.GetId(), Reason: reason, StoreGeneration: new(generation.GetNumber()), StoreGenerationId: generation.GetId(),
	}); err == nil {
		refused = detailed
	}
	return &refusal{status: refused, reason: message}
}

// Tombstone says what was done to a node that was removed, by whom and when.
func Tombstone(node *clusterv1.NodeRecord) string {
	done := "decommissioned"
	if node.GetRemoval().GetDeleted() {
		done = "deleted"
	}
	by, at := node.GetRemoval().GetBy(), node.GetRemoval().GetTime()
	if at == nil {
		at = node.GetSince()
	}
	if by != "" {
		done += " by " + by
	}
	if at != nil {
		done += " at " + at.AsTime().Format(time.RFC3339)
	}
	return valid(done)
}
