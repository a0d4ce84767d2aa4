package params

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Version is the version of the parameters' format that this core reads.
const Version = "reeve.node.v1"

// maxSize bounds a parameters file. A file of this size holds thousands of roles; a larger one is not a parameters file.
const maxSize = 1 << 20

// Error says what is wrong with the parameters of one source: everything at once, each problem with its place in the file and its field.
type Error struct {
	// Source is where they are from: a path, or the name of another source.
	Source string
	// Err is what is wrong.
	Err error
}

func (e *Error) Error() string {
	if errors.Is(e.Err, fs.ErrNotExist) {
		return fmt.Sprintf("params: there is no parameters file %s: write one (docs/reference/parameters.md), have `reeve init` or `reeve dev up` write it, or name another with --parameters", e.Source)
	}
	return fmt.Sprintf("params: the parameters of %s cannot be used, correct them and start again:\n%s", e.Source, strings.TrimSpace(e.Err.Error()))
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Load reads and checks a parameters file. Every problem that it finds is in the *Error that it returns.
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
