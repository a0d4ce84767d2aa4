package hostfile

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// Error is a refusal to read or replace a file. The message says why and what to do; Explain adds what failed. It never carries content.
type Error struct {
	Code    codes.Code
	Message string
	// Err is the cause, which may be nil.
	Err error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error with a cause, which may be nil.
func Errorf(code codes.Code, err error, format string, arguments ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, arguments...), Err: err}
}

// Refusals that the core makes too.
var (
	// ErrChanged says that the file is another than it was a moment ago.
	ErrChanged = Errorf(codes.Aborted, nil, "it was changed at the same time: read it again and retry")
	// ErrTooLarge says that the file is larger than MaxSize.
	ErrTooLarge = Errorf(codes.FailedPrecondition, nil, "it is larger than %d MiB, the limit for roles: make it smaller, or grant another path", MaxSize>>20)
)

// Refusals that no kernel error stands for.
var (
	errNotRegular = Errorf(codes.FailedPrecondition, nil, "it is not a regular file: grant the path of a regular file")
	errLinked     = Errorf(codes.FailedPrecondition, nil, "the file has other names (hard links), which would keep the old content: remove them, or replace the file with a copy")
	errCapable    = Errorf(codes.FailedPrecondition, nil, "it has file capabilities, and a role may not write what runs with them: run setcap -r on it, or grant another path")
	errSetID      = Errorf(codes.FailedPrecondition, nil, "it is set-user-ID or set-group-ID, and a role may not write what runs as another user: clear that mode, or grant another path")
	errImmutable  = Errorf(codes.FailedPrecondition, nil, "it is immutable or append-only, which holds for root too: run chattr -ia on it, or grant another path")
	errFixed      = Errorf(codes.FailedPrecondition, nil, "its directory is immutable or append-only, which holds for root too: run chattr -ia on the directory, or grant another path")
)

// refuseForeignDirectory refuses a file that another user's directory holds without that user owning it.
func refuseForeignDirectory(uid uint32) error {
	return Errorf(codes.FailedPrecondition, nil, "its directory belongs to user %d and the file does not, so this user could lead the core to any other file: "+
		"give the directory to the core's user, or the file to that user", uid)
}

// Explain turns an error into an Error that says what failed on which file.
func Explain(err error, doing, path string) error {
	var why *Error
	if !errors.As(err, &why) {
		why = explainKernelError(err)
	}
	return Errorf(why.Code, err, "cannot %s %s: %s", doing, path, why.Message)
}

// explainKernelError explains an error of the kernel.
func explainKernelError(err error) *Error {
	for _, known := range []struct {
		errno   unix.Errno
		code    codes.Code
		message string
	}{
		{unix.ELOOP, codes.FailedPrecondition, "it is, or lies behind, a symbolic link, and the core follows none: grant the path that the link leads to"},
		{unix.ENOENT, codes.NotFound, "there is no such file"},
		{unix.ENOTDIR, codes.FailedPrecondition, "its directory is a file: grant another path, or make the directory"},
		{unix.EROFS, codes.FailedPrecondition, "its file system is read-only: mount it for writing, or grant another path"},
		{unix.ENOSPC, codes.ResourceExhausted, "its file system is full: free some space and try again"},
		{unix.EDQUOT, codes.ResourceExhausted, "its file system is full: free some space and try again"},
		{unix.ENAMETOOLONG, codes.InvalidArgument, "a part of the path is too long for the file system: use a shorter one"},
	} {
		if errors.Is(err, known.errno) {
			return Errorf(known.code, err, "%s", known.message)
		}
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return Errorf(codes.PermissionDenied, err, "the kernel denies it to the core's user (%v): run the core as root, or let its user write the directory and the file", err)
	}
	return Errorf(codes.Internal, err, "%v: see the node's log, and try again", err)
}
