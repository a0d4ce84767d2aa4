package fault

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/problem"
)

// Code is the exit code of a command. The numbers are stable.
type Code int

// The exit codes.
const (
	OK Code = 0
	// Failed: it failed, or timed out.
	Failed Code = 1
	// Usage: the command line itself is wrong.
	Usage Code = 2
	// NotFound: a node, role, file or directory that the command line names does not exist.
	NotFound Code = 3
	// Refused: the caller may not do it, or something else is needed first.
	Refused Code = 4
	// Unreachable: the node or the cluster does not answer.
	Unreachable Code = 5
)

// Error is why a command failed.
type Error struct {
	Code Code
	// What happened, to which node, role or file: a sentence without its full stop.
	What string
	// Next is a whole sentence that says what to do; empty: nothing is known to help.
	Next string
	// Details are lines that belong to it, such as the last that a role wrote. They are shown below the message and are not part of it.
	Details []string
	// Err is the cause; nil if there is none beyond What, which mentions it where it helps.
	Err error
}

// New returns an Error without a cause.
func New(code Code, what, next string) *Error {
	return &Error{Code: code, What: what, Next: next}
}

// Wrap returns an Error whose What ends with its cause.
func Wrap(code Code, err error, what, next string) *Error {
	return &Error{Code: code, What: what + ": " + Message(err), Next: next, Err: err}
}

// File returns an Error for a file that cannot be read or written: NotFound, Refused if the caller may not, otherwise Failed.
func File(err error, what, next string) *Error { return FileOr(Failed, err, what, next) }

// FileOr is File with another code than Failed.
func FileOr(code Code, err error, what, next string) *Error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = NotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = Refused
	}
	return Wrap(code, err, what, next)
}

// Error implements error.
func (e *Error) Error() string {
	if e.Next == "" {
		return e.What
	}
	return e.What + ". " + e.Next
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the exit code for err: that of the Error in its chain, OK for nil, Failed for everything else.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var fault *Error
	if errors.As(err, &fault) {
		return fault.Code
	}
	return Failed
}

// Message returns the text of an error without gRPC's own words.
func Message(err error) string { return problem.Plain(err) }

// Details returns the lines that belong to an error.
func Details(err error) []string {
	var fault *Error
	if errors.As(err, &fault) {
		return fault.Details
	}
	return nil
}

// FromRPC turns the error of an RPC into an Error. what says what was tried, without a full stop; next says what to do if the call was
// refused or something was not found. A server that did not answer gets an advice of its own.
func FromRPC(err error, what, next string) error {
	if err == nil {
		return nil
	}
	var fault *Error
	if errors.As(err, &fault) {
		return err
	}
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return Wrap(Failed, err, what, "")
	}
	code := Failed
	switch status.Code(err) {
	case codes.NotFound:
		code = NotFound
	case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted, codes.ResourceExhausted:
		code = Refused
	case codes.PermissionDenied, codes.Unauthenticated:
		code, next = Refused, "Check that the owner key is the one with which the cluster was made."
	case codes.Unimplemented:
		next = "The other side runs another version: `reeve version` shows that of the node."
	case codes.Unavailable, codes.DeadlineExceeded:
		code, next = Unreachable, "Run `reeve status` to see how the node is."
	}
	var advised *Advised
	if errors.As(err, &advised) {
		next = advised.Next
	}
	return Wrap(code, err, what, next)
}

// Advised is an error of an RPC with what to do about it, from someone who knows that better than the caller: FromRPC takes it in the place of its own.
type Advised struct {
	Err  error
	Next string
}

// Error implements error.
func (a *Advised) Error() string { return a.Err.Error() }

// Unwrap returns the error itself.
func (a *Advised) Unwrap() error { return a.Err }

// GRPCStatus returns the status of the error itself.
func (a *Advised) GRPCStatus() *status.Status { return status.Convert(a.Err) }
