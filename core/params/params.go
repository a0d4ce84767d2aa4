package params

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/reeveproject/reeve/proto/plainfile"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Version is the format version of the parameters that this core reads.
const Version = "reeve.node.v1"

// maxSize is the largest parameters file in bytes, enough for thousands of roles.
const maxSize = 1 << 20

// Error lists everything that is wrong with the parameters in a file, each problem with its place in the file and its field.
type Error struct {
	File string
	// Err is what is wrong.
	Err error
}

func (e *Error) Error() string {
	if errors.Is(e.Err, fs.ErrNotExist) {
		return fmt.Sprintf("params: there is no parameters file %s: write one (docs/reference/parameters.md), let `reeve init` or `reeve dev up` write it, or name another with --parameters", e.File)
	}
	return fmt.Sprintf("params: the parameters in %s are invalid; correct them and start again:\n%s", e.File, strings.TrimSpace(e.Err.Error()))
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// load reads and checks a parameters file.
func load(path string) (*nodev1.Parameters, error) {
	document, err := read(path)
	if err != nil {
		return nil, &Error{File: path, Err: err}
	}
	parameters, err := Parse(path, document)
	if err != nil {
		return nil, &Error{File: path, Err: err}
	}
	return parameters, nil
}

func read(path string) ([]byte, error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	// One byte more than allowed, so that Parse notices.
	return io.ReadAll(io.LimitReader(file, maxSize+1))
}
