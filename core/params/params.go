package params

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"buf.build/go/protovalidate"
	"buf.build/go/protoyaml"
	"google.golang.org/protobuf/proto"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Version is the version of the parameters' format that this core reads.
const Version = "reeve.node.v1"

// maxSize bounds a parameters file. A file of this size holds thousands of roles; a larger one is not a parameters file.
const maxSize = 1 << 20

// Error says what is wrong with a parameters file: everything at once, each problem with its place in the file and its field.
type Error struct {
	// Path is the file that was read.
	Path string
	// Err is what is wrong.
	Err error
}

func (e *Error) Error() string {
	if errors.Is(e.Err, fs.ErrNotExist) {
		return fmt.Sprintf("params: there is no parameters file %s: write one (docs/reference/parameters.md) or let `reeve dev up` write it", e.Path)
	}
	return fmt.Sprintf("params: the parameters file %s cannot be used, correct it and start again:\n%s", e.Path, strings.TrimSpace(e.Err.Error()))
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Load reads and checks a parameters file. Every problem that it finds is in the *Error that it returns.
func Load(path string) (*nodev1.Parameters, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, &Error{Path: path, Err: err}
	}
	defer file.Close()
	document, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, &Error{Path: path, Err: err}
	}
	parameters, err := Parse(path, document)
	if err != nil {
		return nil, &Error{Path: path, Err: err}
	}
	return parameters, nil
}

// Parse reads and checks a parameters document in YAML or JSON. Name is used in messages only.
func Parse(name string, document []byte) (*nodev1.Parameters, error) {
	if len(document) > maxSize {
		return nil, fmt.Errorf("it is larger than %d bytes", maxSize)
	}
	if len(strings.TrimSpace(string(document))) == 0 {
		return nil, errors.New("it is empty")
	}
	validator, err := protovalidate.New(protovalidate.WithMessages(&nodev1.Parameters{}), protovalidate.WithDisableLazy())
	if err != nil {
		return nil, fmt.Errorf("the rules of the parameters do not compile: %w", err)
	}
	parameters := &nodev1.Parameters{}
	err = protoyaml.UnmarshalOptions{Path: filepath.Base(name), Validator: rules{validator}}.Unmarshal(document, parameters)
	// Whatever could be read is checked too, so that one correction shows no further problem.
	if err := errors.Join(err, checkDirectories(parameters.GetDirectories()), checkConfigurations(parameters.GetBootstrap())); err != nil {
		return nil, err
	}
	return parameters, nil
}

// rules gives the validator the form that protoyaml expects.
type rules struct{ validator protovalidate.Validator }

func (r rules) Validate(message proto.Message) error { return r.validator.Validate(message) }

// checkDirectories refuses directories that lie within each other: one of them is small, one may be sealed, one is a tmpfs.
func checkDirectories(d *nodev1.Directories) error {
	named := []struct{ name, path string }{
		{"system", d.GetSystem()}, {"data", d.GetData()}, {"run", d.GetRun()},
	}
	var problems []error
	for i, a := range named {
		for j, b := range named {
			if i == j || a.path == "" || b.path == "" {
				continue
			}
			inner, outer := filepath.Clean(a.path), filepath.Clean(b.path)
			if inner == outer && i < j {
				problems = append(problems, fmt.Errorf("directories.%s: is the same as directories.%s", b.name, a.name))
			}
			if inner != outer && strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/") {
				problems = append(problems, fmt.Errorf("directories.%s: lies within directories.%s", a.name, b.name))
			}
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// checkConfigurations refuses configurations that no role could read.
func checkConfigurations(bootstrap *nodev1.Bootstrap) error {
	var problems []error
	for i, role := range bootstrap.GetRoles() {
		if text := role.GetConfiguration(); text != "" && !json.Valid([]byte(text)) {
			problems = append(problems, fmt.Errorf("bootstrap.roles[%d].configuration: is not a JSON document", i))
		}
	}
	return errors.Join(problems...)
}
