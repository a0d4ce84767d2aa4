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
		format      *store.FormatError
		record      *store.RecordError
	)
	switch {
	case errors.As(err, &unavailable):
		return status.Errorf(codes.Unavailable, "%v: try again; the state of the role that provides %s says what the store waits for", err, store.CapabilityConsensus)
	case errors.As(err, &tooLarge):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.As(err, &format):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.As(err, &record):
		return status.Errorf(codes.DataLoss, "%v: restore the consensus store from a snapshot, or run the version of the curator that wrote it", err)
	case errors.Is(err, store.ErrConflict):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, store.ErrNoCluster):
		return status.Errorf(codes.Unavailable, "%v: it is made by the core of the first node", err)
	case errors.Is(err, store.ErrNoNode):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
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
			return detailed.Err()
		}
	}
	return refused.Err()
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
