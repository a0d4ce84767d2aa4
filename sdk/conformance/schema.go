package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is the JSON Schema of a role's configuration.
type schema struct {
	compiled *jsonschema.Schema
	root     any
}

// readSchema parses a schema. It must not refer to other documents.
func readSchema(text string) (*schema, error) {
	root, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource("reeve:configuration", root); err != nil {
		return nil, err
	}
	compiled, err := compiler.Compile("reeve:configuration")
	return &schema{compiled, root}, err
}

// noLoader refuses every reference to another document, as the cluster does.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, and must stand by itself", url)
}

// takesObject reports whether an object can match.
func (s *schema) takesObject() bool {
	object, isObject := s.root.(map[string]any)
	if !isObject {
		return s.root == true
	}
	types := typesOf(object)
	return len(types) == 0 || slices.Contains(types, "object")
}

// misfit is a place in a document that violates a keyword.
type misfit struct{ location, keyword string }

// misfits returns where a value does not match; nil if it matches.
func (s *schema) misfits(value any) []misfit {
	var invalid *jsonschema.ValidationError
	if !errors.As(s.compiled.Validate(value), &invalid) {
		return nil
	}
	var found []misfit
	var visit func(*jsonschema.ValidationError)
	visit = func(one *jsonschema.ValidationError) {
		keyword := ""
		if path := one.ErrorKind.KeywordPath(); len(path) > 0 {
			keyword = path[0]
		}
		found = append(found, misfit{pointer(one.InstanceLocation), keyword})
		for _, cause := range one.Causes {
			visit(cause)
		}
	}
	visit(invalid)
	return found
}

// fits reports whether a value matches.
func (s *schema) fits(value any) bool { return s.compiled.Validate(value) == nil }

// resolve follows references within the schema.
func (s *schema) resolve(node any) map[string]any {
	for range 16 {
		object, _ := node.(map[string]any)
		reference, isReference := object["$ref"].(string)
		if !isReference {
			return object
		}
		path, within := strings.CutPrefix(reference, "#")
		if !within {
			return nil
		}
		node = s.root
		for token := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if token == "" {
				continue
			}
			parent, _ := node.(map[string]any)
			node = parent[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
		}
	}
	return nil
}

// typesOf returns the types that a schema allows; empty: all.
func typesOf(node map[string]any) []string {
	switch of := node["type"].(type) {
	case string:
		return []string{of}
	case []any:
		var types []string
		for _, one := range of {
			if name, ok := one.(string); ok {
				types = append(types, name)
			}
		}
		return types
	}
	return nil
}

// integer returns a keyword's whole number.
func integer(node map[string]any, keyword string) (int, bool) {
	number, ok := node[keyword].(json.Number)
	if !ok {
		return 0, false
	}
	value, err := number.Int64()
	return int(value), err == nil
}

// join appends a token to a JSON Pointer.
func join(path, token string) string {
	return path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

func pointer(location []string) string {
	path := ""
	for _, token := range location {
		path = join(path, token)
	}
	return path
}

// document encodes a value as a configuration.
func document(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was made of JSON
	}
	return string(text)
}

// parse parses a document into values like the schema's.
func parse(text string) (any, error) { return jsonschema.UnmarshalJSON(strings.NewReader(text)) }
