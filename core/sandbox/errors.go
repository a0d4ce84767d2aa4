package sandbox

import (
	"errors"
	"fmt"
)

// ErrExec says that the sandbox was complete but the kernel did not execute the executable. The reason is in the chain: ENOENT, EACCES, ENOEXEC or
// ETXTBSY.
var ErrExec = errors.New("cannot execute")

// PartError says that a part of the sandbox that this host can enforce failed for this process. The process was not started, or was killed before its
// first instruction.
type PartError struct {
	// Part is a name as in Missing.
	Part string
	// Step is the step that failed.
	Step string
	Err  error
}

func (e *PartError) Error() string { return fmt.Sprintf("sandbox: %s: %s: %v", e.Part, e.Step, e.Err) }

func (e *PartError) Unwrap() error { return e.Err }

// PathError says that a granted path cannot be shown to a role.
type PathError struct {
	// Grant is the grant that names the path.
	Grant, Path string
	Err         error
}

func (e *PathError) Error() string {
	return fmt.Sprintf("sandbox: the grant %s of %s: %v: create the path, or withdraw the grant", e.Grant, e.Path, e.Err)
}

func (e *PathError) Unwrap() error { return e.Err }

func failed(part, step string, err error) error {
	if err == nil {
		return nil
	}
	return &PartError{Part: part, Step: step, Err: err}
}
