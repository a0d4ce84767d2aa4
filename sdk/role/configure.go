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

// Configuration is a role's configuration as a struct of its author: a *Configured.
type Configuration interface {
	// Schema returns the JSON Schema of the configuration.
	Schema() (string, error)
	// Check refuses an invalid document with all its problems.
	Check(document []byte) error
}

// Configured is a configuration that is decoded into a struct of the role's author.
type Configured[T any] struct {
	fresh  func() *T
	also   func(*T, *ConfigurationError)
	schema func() (*schema, error)
}

var _ Configuration = (*Configured[struct{}])(nil)

// Configure makes a role's configuration from the struct T: its JSON Schema, and the check of a document before the role starts. defaults returns a
// new T with the default values; nil means the zero value. check adds problems that tags cannot express; it may be nil, and is called if everything
// else is right.
//
// Fields have the names and types of encoding/json. More tags describe a field:
//
//	doc:"for people"            what it is for
//	check:"required"            it must be set
//	check:"min=1,max=9"         the range of a number, or of the count of characters, elements or entries
//	pattern:"^[a-z]+$"          the regular expression (of package regexp) that a text must match
//	enum:"red,green"            the allowed texts
//
// A type that decodes itself from JSON checks itself. null is never allowed.
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

// Of returns the configuration of a running role.
func (c *Configured[T]) Of(host *Host) (*T, error) { return c.Decode(host.Configuration()) }

// Decode decodes a document. The error is a *ConfigurationError with all problems.
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
			// A value of the wrong type is one problem, not several.
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
