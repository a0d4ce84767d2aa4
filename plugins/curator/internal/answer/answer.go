package answer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// most is how many problems a message spells out.
const most = 20

// Error returns what a caller is told of an error: the status that the error is, or the one that fits it.
func Error(err error) error {
	if err == nil {
		return nil
	}
	// Not errors.As alone: a status of the store's own is wrapped in an UnavailableError, and says nothing to the caller.
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err
	}
	var (
		unavailable *store.UnavailableError
		tooLarge    *store.TooLargeError
		tooMany     *store.TooManyError
		format      *store.FormatError
		record      *store.RecordError
		removed     *store.RemovedError
	)
	switch {
	case errors.As(err, &removed):
		return Removed(removed.Node, removed.Generation)
	case errors.As(err, &unavailable):
		said := Errorf(codes.Unavailable, "%v: try again; the state of the role that provides %s says what the store waits for", err, store.CapabilityConsensus)
		if unavailable.Unbegun {
			return Unbegun(said)
		}
		return said
	case errors.As(err, &tooLarge), errors.As(err, &tooMany):
		return Errorf(codes.ResourceExhausted, "%v", err)
	case errors.As(err, &format):
		return Errorf(codes.FailedPrecondition, "%v", err)
	case errors.As(err, &record):
		return Errorf(codes.DataLoss, "%v: restore the consensus store from a snapshot, or run the version of the curator that wrote it", err)
	case errors.Is(err, store.ErrConflict):
		return Errorf(codes.Aborted, "%v", err)
	case errors.Is(err, store.ErrNoCluster):
		return Errorf(codes.Unavailable, "%v: it is made by the core of the first node", err)
	case errors.Is(err, store.ErrNoNode):
		return Errorf(codes.NotFound, "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(codes.DeadlineExceeded, "%v", err)
	case errors.Is(err, context.Canceled):
		return Errorf(codes.Canceled, "%v", err)
	}
	// Nobody has looked at what such a message quotes.
	return Veiled(codes.Internal, "the curator met an error that it does not expect", "%v", err)
}

// Invalid returns the status for problems of a request, nil if there are none. Each problem is also a field violation in its details.
func Invalid(problems rules.Problems) error {
	if len(problems) == 0 {
		return nil
	}
	details := new(errdetails.BadRequest)
	var sentences []string
	for i, problem := range problems {
		details.FieldViolations = append(details.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: valid(problem.Field), Description: valid(problem.Message),
		})
		if i < most {
			sentences = append(sentences, valid(problem.String()))
		}
	}
	message := sentences[0]
	if len(problems) > 1 {
		message = fmt.Sprintf("%d problems: %s", len(problems), strings.Join(sentences, "; "))
		if len(problems) > most {
			message += "; and more"
		}
	}
	refused := status.New(codes.InvalidArgument, message)
	// A status travels in headers, which are bounded: where the details are too many, the message must do.
	if len(problems) <= most {
		if detailed, err := refused.WithDetails(details); err == nil {
			refused = detailed
		}
	}
	reason := "there is a problem with " + fields(problems)
	if len(problems) > 1 {
		reason = fmt.Sprintf("there are %d problems with %s", len(problems), fields(problems))
	}
	return &refusal{status: refused, reason: reason}
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
