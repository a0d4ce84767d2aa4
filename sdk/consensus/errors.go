package consensus

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
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

// ErrOverQuota says, by errors.Is on the error of a call of a Client, that the role's ConsensusUser has used up what it may have in the store, in bytes or in
// leases. Nobody else is concerned. Reads and deletes go on, and so does what leaves the user with no more than it has; the role should delete what it does
// not need, or be granted more by the cluster's owner. By errors.As an *OverQuotaError says how much it has.
var ErrOverQuota = errors.New("the ConsensusUser has used up what it may have in the store")

// OverQuotaError is an ErrOverQuota with what the user has and may have.
type OverQuotaError struct {
	Bytes, BytesQuota   int64
	Leases, LeasesQuota int64

	status *status.Status
}

// Error is what the store said: for whom, how much, and what to do.
func (e *OverQuotaError) Error() string { return e.status.Message() }

// Is makes it an ErrOverQuota.
func (e *OverQuotaError) Is(target error) bool { return target == ErrOverQuota }

// GRPCStatus is what the store answered: ResourceExhausted.
func (e *OverQuotaError) GRPCStatus() *status.Status { return e.status }

// overQuota turns the store's refusal into an *OverQuotaError. A store that has no room for anybody answers with the same code, but without a user's usage.
func overQuota(err error) error {
	answered, ok := status.FromError(err)
	if err == nil || !ok || answered.Code() != codes.ResourceExhausted {
		return err
	}
	for _, detail := range answered.Details() {
		if usage, ok := detail.(*consensusv1.UserUsage); ok {
			return &OverQuotaError{
				Bytes: usage.GetBytes(), BytesQuota: usage.GetBytesQuota(), Leases: usage.GetLeases(), LeasesQuota: usage.GetLeasesQuota(), status: answered,
			}
		}
	}
	return err
}

// tellOverQuota has every call end with an error of this package where it can. What is refused for a quota is never a stream.
func tellOverQuota(ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return overQuota(call(ctx, method, request, answer, connection, options...))
}
