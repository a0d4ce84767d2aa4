package consensus

import (
	"errors"
	"fmt"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Why the store is not open to a role, by errors.Is on the error of Dial. None of them goes away while the role just waits a little:
// what would have to change is said with each.
var (
	// ErrNoLocalConsensus says that no role of this node provides the store: one must be assigned to the node.
	ErrNoLocalConsensus = errors.New("this node runs no consensus store")
	// ErrUnknownUser says that the role's manifest declares no ConsensusUser.
	ErrUnknownUser = errors.New("the role declares no ConsensusUser")
	// ErrNotMember says that the node's membership does not permit it: it is not Home, or Split and the role does not continue in Split.
	// Host.Membership tells when that changes.
	ErrNotMember = errors.New("the node's membership does not permit it")
	// ErrNotGranted says that the cluster's owner has not granted the declared ConsensusUser to the role.
	ErrNotGranted = errors.New("the ConsensusUser is not granted")
)

// unavailable turns the host's reason into an error, or nil if it is worth waiting.
func unavailable(why *hostv1.ConsensusUnavailable) error {
	kind := map[hostv1.ConsensusUnavailableReason]error{
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NO_LOCAL_CONSENSUS: ErrNoLocalConsensus,
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_UNKNOWN_USER:       ErrUnknownUser,
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_MEMBER:         ErrNotMember,
		hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_GRANTED:        ErrNotGranted,
	}[why.GetReason()]
	switch {
	case why.GetReason() == hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_WAITING:
		return nil
	case kind == nil:
		return fmt.Errorf("consensus: not available: %s (%s)", why.GetMessage(), why.GetReason())
	case why.GetMessage() == "":
		return fmt.Errorf("consensus: %w", kind)
	}
	return fmt.Errorf("consensus: %w: %s", kind, why.GetMessage())
}
