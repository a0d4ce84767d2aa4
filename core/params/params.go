package params

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Version is the format version of the parameters that this core reads.
const Version = "reeve.node.v1"

// maxSize is the largest parameters file in bytes, enough for thousands of roles.
const maxSize = 1 << 20

// Error lists everything that is wrong with one source's parameters, each problem with its place in the file and its field.
type Error struct {
	// Source is a path or the name of another source.
	Source string
	// Err is what is wrong.
	Err error
}

func (e *Error) Error() string {
	if errors.Is(e.Err, fs.ErrNotExist) {
		return fmt.Sprintf("params: there is no parameters file %s: write one (docs/reference/parameters.md), let `reeve init` or `reeve dev up` write it, or name another with --parameters", e.Source)
	}
	return fmt.Sprintf("params: the parameters in %s are invalid; correct them and start again:\n%s", e.Source, strings.TrimSpace(e.Err.Error()))
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Load reads and checks a parameters file. The *Error lists every problem.
func Load(path string) (*nodev1.Parameters, error) {
	return load(File(path))
}

func load(source Source) (*nodev1.Parameters, error) {
	document, err := source.Read()
	if err != nil {
		return nil, &Error{Source: source.String(), Err: err}
	}
	parameters, err := Parse(source.String(), document)
	if err != nil {
		return nil, &Error{Source: source.String(), Err: err}
	}
	return parameters, nil
}
