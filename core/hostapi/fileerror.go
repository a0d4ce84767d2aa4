package hostapi

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// fileError is a refusal to read or replace a file. The message says why and what to do; explain adds what failed. It never carries content.
type fileError struct {
	code    codes.Code
	message string
	err     error // may be nil
}

func (e *fileError) Error() string { return e.message }
func (e *fileError) Unwrap() error { return e.err }

// Refusals that no kernel error stands for.
var (
	errNotRegular = newFileError(codes.FailedPrecondition, nil, "it is not a regular file: grant the path of a regular file")
	errLinked     = newFileError(codes.FailedPrecondition, nil, "the file has other names (hard links), which would keep the old content: remove them, or replace the file with a copy")
	errSetID      = newFileError(codes.FailedPrecondition, nil, "it is set-user-ID or set-group-ID, and a role may not write what runs as another user: clear that mode, or grant another path")
	errTooLarge   = newFileError(codes.FailedPrecondition, nil, "it is larger than %d bytes, the limit for roles", maxFileSize)
	errChanged    = newFileError(codes.Aborted, nil, "it was changed at the same time: read it again and retry")
)

func newFileError(code codes.Code, err error, format string, arguments ...any) *fileError {
	return &fileError{code: code, message: fmt.Sprintf(format, arguments...), err: err}
}

// refuseForeignDirectory refuses a file that another user's directory holds without that user owning it.
func refuseForeignDirectory(uid uint32) error {
	return newFileError(codes.FailedPrecondition, nil, "its directory belongs to user %d and the file does not, so this user could lead the core to any other file: "+
		"give the directory to the core's user, or the file to that user", uid)
}

func refuse(code codes.Code, doing, path, format string, arguments ...any) *fileError {
	return newFileError(code, nil, "cannot %s %s: %s", doing, path, fmt.Sprintf(format, arguments...))
}

// explain turns an error into a refusal that names the file.
func explain(err error, doing, path string) error {
	var why *fileError
	if !errors.As(err, &why) {
		why = explainKernelError(err)
	}
	return newFileError(why.code, err, "cannot %s %s: %s", doing, path, why.message)
}

// explainKernelError explains an error of the kernel.
func explainKernelError(err error) *fileError {
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
			return newFileError(known.code, err, "%s", known.message)
		}
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return newFileError(codes.PermissionDenied, err, "the kernel denies it to the core's user (%v): run the core as root, or let its user write the directory and the file", err)
	}
	return newFileError(codes.Internal, err, "%v: see the node's log, and try again", err)
}
