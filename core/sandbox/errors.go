package sandbox

import (
	"errors"
	"fmt"
)

// ErrExec says that the sandbox stood and the executable could not be executed in it. The kernel's reason is in the chain: ENOENT, EACCES,
// ENOEXEC, ETXTBSY.
var ErrExec = errors.New("cannot execute")

// PartError says that a part of a sandbox that can be enforced on this host could not be made for this process, which was not started, or was killed
// before it ran an instruction.
type PartError struct {
	// Part is named as in Missing.
	Part string
	// Step is what was being done.
	Step string
	Err  error
}

func (e *PartError) Error() string { return fmt.Sprintf("sandbox: %s: %s: %v", e.Part, e.Step, e.Err) }

func (e *PartError) Unwrap() error { return e.Err }

// PathError says that a path that a role was granted cannot be shown to it.
type PathError struct {
	// Grant is the grant that names the path.
	Grant, Path string
	Err         error
}

func (e *PathError) Error() string {
	return fmt.Sprintf("sandbox: the grant %s of %s: %v: make it, or withdraw the grant", e.Grant, e.Path, e.Err)
}

func (e *PathError) Unwrap() error { return e.Err }

func failed(part, step string, err error) error {
	if err == nil {
		return nil
	}
	return &PartError{Part: part, Step: step, Err: err}
}
