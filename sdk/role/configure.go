package role

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// Configuration is what a Role needs of a configuration that is a struct of its author's: a *Configured.
type Configuration interface {
	// Schema is the JSON Schema of the configuration.
	Schema() (string, error)
	// Check refuses a document, with all that is wrong with it.
	Check(document []byte) error
}

// Configured is a configuration that is read into a struct of its author's.
type Configured[T any] struct {
	fresh  func() *T
	also   func(*T, *ConfigurationError)
	schema func() (*schema, error)
}

var _ Configuration = (*Configured[struct{}])(nil)

// Configure makes the configuration of a role from the struct T: its JSON Schema, and the check of a document before the role starts. defaults returns a new T with what holds where
// nothing is set; nil: its zero value. check adds what the tags cannot say is wrong; nil: nothing. It is called when all else is right.
//
// The fields have the names and types that encoding/json gives them, and more tags may say of a field
//
//	doc:"for people"            what it is for
//	check:"required"            it must be set
//	check:"min=1,max=9"         the bounds of a number, or how many characters, elements or entries there may be
//	pattern:"^[a-z]+$"          what a text must match (a regular expression of Go's)
//	enum:"red,green"            which texts there are
//
// A type that decodes itself from JSON checks itself. Nothing may be null.
func Configure[T any](defaults func() *T, check func(*T, *ConfigurationError)) *Configured[T] {
	if defaults == nil {
		defaults = func() *T { return new(T) }
	}
	return &Configured[T]{fresh: defaults, also: check, schema: sync.OnceValues(func() (*schema, error) {
		return schemaOf(reflect.ValueOf(defaults()).Elem())
	})}
}

// Schema implements Configuration.
func (c *Configured[T]) Schema() (string, error) {
	schema, err := c.schema()
	if err != nil {
		return "", fmt.Errorf("%T: %w", *new(T), err)
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	return string(text), err
}

// Check implements Configuration.
func (c *Configured[T]) Check(document []byte) error {
	_, err := c.Decode(document)
	return err
}

// Of is the configuration of a running role.
func (c *Configured[T]) Of(host *Host) (*T, error) { return c.Decode(host.Configuration()) }

// Decode reads a document. The error is a *ConfigurationError with all that is wrong with it.
func (c *Configured[T]) Decode(document []byte) (*T, error) {
	schema, err := c.schema()
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(document)) == 0 {
		document = []byte("{}")
	}
	read, problems := c.fresh(), &ConfigurationError{}
	if err := Decode(document, read); err != nil && !errors.As(err, &problems) {
		return nil, err
	}
	if json.Valid(document) {
		typed, tagged := slices.Clip(problems.Problems), &ConfigurationError{}
		schema.check(tagged, "", document)
		for _, problem := range tagged.Problems {
			// Of a value that is not of its type there is one thing to say.
			if !slices.ContainsFunc(typed, func(other ConfigurationProblem) bool { return other.Path == problem.Path }) {
				problems.Problems = append(problems.Problems, problem)
			}
		}
	}
	if len(problems.Problems) == 0 && c.also != nil {
		c.also(read, problems)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return read, nil
}
