package answer

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Unbegun returns the status of a call of which nothing was done, which is why it is safe to make it again, also one that changes something. If the reason is this curator's,
// and so the code Unavailable, the status says so by a google.rpc.RetryInfo: another curator may be asked at once. Any other error stays as it is.
func Unbegun(err error) error {
	said, ok := status.FromError(err)
	if !ok || said.Code() != codes.Unavailable {
		return err
	}
	detailed, detailErr := said.WithDetails(new(errdetails.RetryInfo))
	if detailErr != nil {
		return err
	}
	refused := &refusal{status: detailed, reason: said.Message()}
	if before := (*refusal)(nil); errors.As(err, &before) {
		refused.reason = before.reason
	}
	return refused
}

// Partly returns the status of a call that ended when a part of it was done. It has the code of its error, and no details: what they say is of a call of which nothing was done.
// The audit log keeps the part.
func Partly(err error, part string) error {
	err = Error(err)
	said := status.Convert(err)
	return &refusal{status: status.New(said.Code(), valid(part+": "+said.Message())), reason: part + ": " + Reason(err)}
}
