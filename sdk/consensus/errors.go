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

// The reasons why the store is not open to a role, by errors.Is on Dial's error. Waiting a little does not help; each comment says what would.
var (
	// ErrNoLocalConsensus says that no role of this node provides the store: assign one to the node.
	ErrNoLocalConsensus = errors.New("this node runs no consensus store")
	// ErrUnknownUser says that the role's manifest declares no ConsensusUser.
	ErrUnknownUser = errors.New("the role declares no ConsensusUser")
	// ErrNotMember says that the node's membership does not permit it: the node is not Home, or it is Split and the role does not continue in Split.
	// Watch Host.Membership for changes.
	ErrNotMember = errors.New("the node's membership does not permit it")
	// ErrNotGranted says that the cluster's owner has not granted the declared ConsensusUser to the role.
	ErrNotGranted = errors.New("the ConsensusUser is not granted")
)

// unavailable turns the host's reason into an error; nil if waiting may help.
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

// ErrOverQuota says, by errors.Is on a Client call's error, that the role's ConsensusUser has used up its quota of bytes or leases. Others are not
// affected. Reads and deletes still work, and so do writes that do not increase the usage. The role should delete what it does not need, or ask the
// cluster's owner for more. An *OverQuotaError, by errors.As, has the numbers.
var ErrOverQuota = errors.New("the ConsensusUser has used up its quota in the store")

// OverQuotaError is an ErrOverQuota with the user's usage and quota.
type OverQuotaError struct {
	Bytes, BytesQuota   int64
	Leases, LeasesQuota int64

	status *status.Status
}

// Error is the store's message: for whom, how much, and what to do.
func (e *OverQuotaError) Error() string { return e.status.Message() }

// Is makes errors.Is(e, ErrOverQuota) true.
func (e *OverQuotaError) Is(target error) bool { return target == ErrOverQuota }

// GRPCStatus is the store's answer, ResourceExhausted.
func (e *OverQuotaError) GRPCStatus() *status.Status { return e.status }

// overQuota turns the store's refusal into an *OverQuotaError. A store that is full for everybody answers with the same code, but without a user's
// usage.
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

// tellOverQuota maps the errors of all unary calls. A stream is never refused for a quota.
func tellOverQuota(ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return overQuota(call(ctx, method, request, answer, connection, options...))
}
