package hostapi

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// Reasons to refuse a file, besides the kernel's.
var (
	errNotRegular = errors.New("not a regular file")
	errLinked     = errors.New("the file has other hard links")
	errSetID      = errors.New("the file is set-user-ID or set-group-ID")
	errTooLarge   = errors.New("the file is too large")
	errChanged    = errors.New("the file was changed at the same time")
)

// ownerError says that a new file could not get the owner of the file that it replaces.
type ownerError struct {
	uid, gid uint32
	err      error
}

func (e *ownerError) Error() string { return fmt.Sprintf("owner %d:%d: %v", e.uid, e.gid, e.err) }
func (e *ownerError) Unwrap() error { return e.err }

// displacedError says that a file was moved away and could not be put back.
type displacedError struct {
	temporary string
	err       error
}

func (e *displacedError) Error() string { return fmt.Sprintf("left as %s: %v", e.temporary, e.err) }
func (e *displacedError) Unwrap() error { return e.err }

// tornError says that writing in place failed halfway, and that restoring the former content failed too.
type tornError struct{ err error }

func (e *tornError) Error() string { return fmt.Sprintf("torn: %v", e.err) }
func (e *tornError) Unwrap() error { return e.err }

// unguardedError says that others than the core's user may put files into a directory.
type unguardedError struct {
	uid  uint32
	mode uint32 // 0: the reason is the owner alone
}

func (e *unguardedError) Error() string {
	return fmt.Sprintf("directory of user %d with mode %04o", e.uid, e.mode)
}

// fileError is a refusal to read or replace a file. The message says what to do. It never carries content.
type fileError struct {
	code    codes.Code
	message string
	err     error // may be nil
}

func (e *fileError) Error() string { return e.message }
func (e *fileError) Unwrap() error { return e.err }

func refuse(code codes.Code, doing, path, format string, arguments ...any) *fileError {
	return &fileError{code: code, message: fmt.Sprintf("cannot %s %s: %s", doing, path, fmt.Sprintf(format, arguments...))}
}

// explain turns an error into a refusal.
func explain(err error, doing, path string) error {
	refused := explanation(err, doing, path)
	refused.err = err
	return refused
}

func explanation(err error, doing, path string) *fileError {
	var owner *ownerError
	var displaced *displacedError
	var unguarded *unguardedError
	var torn *tornError
	switch {
	case errors.As(err, &torn):
		return refuse(codes.Internal, doing, path, "it is a mount point and was written in place; that failed halfway, and restoring the former content failed too (%v): free some space and repair the file",
			torn.err)
	case errors.As(err, &unguarded) && unguarded.mode != 0:
		return refuse(codes.FailedPrecondition, doing, path, "others may write to its directory (mode %04o) and could lead the core to any other file: run chmod go-w on the directory, or grant another path",
			unguarded.mode)
	case errors.As(err, &unguarded):
		return refuse(codes.FailedPrecondition, doing, path, "its directory belongs to user %d and the file does not, so this user could lead the core to any other file: give the directory to the core's user, or the file to that user",
			unguarded.uid)
	case errors.As(err, &displaced):
		return refuse(codes.Internal, doing, path, "somebody else changed it at the same time, and their version could not be put back: it is in the same directory as %s (%v)",
			displaced.temporary, displaced.err)
	case errors.As(err, &owner):
		return refuse(codes.PermissionDenied, doing, path, "it belongs to %d:%d, and the core's user cannot create files of that owner: run the core as root, or give the file to the core's user",
			owner.uid, owner.gid)
	case errors.Is(err, errChanged):
		return refuse(codes.Aborted, doing, path, "it was changed at the same time: read it again and retry")
	case errors.Is(err, unix.ELOOP):
		return refuse(codes.FailedPrecondition, doing, path, "it is, or lies behind, a symbolic link, and the core follows none: grant the path that the link leads to")
	case errors.Is(err, errNotRegular):
		return refuse(codes.FailedPrecondition, doing, path, "it is not a regular file: grant the path of a regular file")
	case errors.Is(err, errLinked):
		return refuse(codes.FailedPrecondition, doing, path, "the file has other names (hard links), which would keep the old content: remove them, or replace the file with a copy")
	case errors.Is(err, errSetID):
		return refuse(codes.FailedPrecondition, doing, path, "it is set-user-ID or set-group-ID, and a role may not write what runs as another user: clear that mode, or grant another path")
	case errors.Is(err, errTooLarge):
		return refuse(codes.FailedPrecondition, doing, path, "it is larger than %d bytes, the limit for roles", maxFileSize)
	case errors.Is(err, unix.ENOENT):
		return refuse(codes.NotFound, doing, path, "there is no such file")
	case errors.Is(err, unix.ENOTDIR):
		return refuse(codes.FailedPrecondition, doing, path, "its directory is a file: grant another path, or make the directory")
	case errors.Is(err, unix.EROFS):
		return refuse(codes.FailedPrecondition, doing, path, "its file system is read-only: mount it for writing, or grant another path")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return refuse(codes.ResourceExhausted, doing, path, "its file system is full: free some space and try again")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return refuse(codes.PermissionDenied, doing, path, "the kernel denies it to the core's user (%v): run the core as root, or let its user write the directory and the file", err)
	case errors.Is(err, unix.ENAMETOOLONG):
		return refuse(codes.InvalidArgument, doing, path, "a part of the path is too long for the file system: use a shorter one")
	default:
		return refuse(codes.Internal, doing, path, "%v: see the node's log, and try again", err)
	}
}
