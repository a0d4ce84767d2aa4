package role

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// schema is the part of JSON Schema (draft 2020-12) that a struct's fields and tags can express. Decode decides about fields and types; the schema
// follows it, and checks the tags.
type schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"`
	Format      string             `json:"format,omitempty"`
	Default     json.RawMessage    `json:"default,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	// Others is the schema of unnamed properties: false, or a *schema.
	Others   any      `json:"additionalProperties,omitempty"`
	Required []string `json:"required,omitempty"`
	Items    *schema  `json:"items,omitempty"`
	Enum     []string `json:"enum,omitempty"`
	Pattern  string   `json:"pattern,omitempty"`

	Minimum       *float64 `json:"minimum,omitempty"`
	Maximum       *float64 `json:"maximum,omitempty"`
	MinLength     *float64 `json:"minLength,omitempty"`
	MaxLength     *float64 `json:"maxLength,omitempty"`
	MinItems      *float64 `json:"minItems,omitempty"`
	MaxItems      *float64 `json:"maxItems,omitempty"`
	MinProperties *float64 `json:"minProperties,omitempty"`
	MaxProperties *float64 `json:"maxProperties,omitempty"`

	matches *regexp.Regexp
}

// schemas makes the schema of a type and collects problems of the type.
type schemas struct {
	problems ConfigurationError
	within   []reflect.Type
}

// schemaOf returns the schema of a struct type, with its fields' defaults.
func schemaOf(defaults reflect.Value) (*schema, error) {
	var s schemas
	if defaults.Kind() != reflect.Struct || decodesItself(defaults.Type()) {
		return nil, fmt.Errorf("the configuration is a %s: want a struct", defaults.Type())
	}
	made := s.of("", defaults.Type(), defaults)
	if len(s.problems.Problems) == 0 {
		// Nobody could set a default that the schema refuses.
		if document, err := json.Marshal(defaults.Interface()); err == nil {
			made.checkDefaults(&s.problems, "", document)
		}
	}
	made.Dialect = "https://json-schema.org/draft/2020-12/schema"
	return made, s.problems.Err()
}

// of makes the schema of a type. Only struct fields of defaults are used; it may be the zero Value.
func (s *schemas) of(path string, t reflect.Type, defaults reflect.Value) *schema {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
		if defaults.IsValid() {
			defaults = defaults.Elem() // the zero Value, if it is nil
		}
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &schema{Type: "string", Format: "date-time"}
	case t == reflect.TypeFor[json.Number]():
		return &schema{Type: "number"}
	case reflect.PointerTo(t).Implements(jsonUnmarshaler):
		return &schema{} // it checks itself
	case decodesItself(t):
		return &schema{Type: "string"}
	}
	switch kind := t.Kind(); {
	case kind == reflect.Bool:
		return &schema{Type: "boolean"}
	case kind == reflect.String:
		return &schema{Type: "string"}
	case kind == reflect.Float32 || kind == reflect.Float64:
		return &schema{Type: "number"}
	case kind >= reflect.Int && kind <= reflect.Int64:
		made := &schema{Type: "integer"}
		// A JSON number may not keep all of 64 bits.
		if bits := t.Bits(); bits < 64 {
			made.Minimum, made.Maximum = number(-math.Exp2(float64(bits-1))), number(math.Exp2(float64(bits-1))-1)
		}
		return made
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		made := &schema{Type: "integer", Minimum: number(0)}
		if bits := t.Bits(); bits < 64 {
			made.Maximum = number(math.Exp2(float64(bits)) - 1)
		}
		return made
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !decodesItself(t.Elem()):
		return &schema{Type: "string"} // base64
	case kind == reflect.Slice || kind == reflect.Array:
		return &schema{Type: "array", Items: s.of(join(path, "0"), t.Elem(), reflect.Value{})}
	case kind == reflect.Map && t.Key().Kind() == reflect.String && !decodesItself(t.Key()):
		return &schema{Type: "object", Others: s.of(join(path, "*"), t.Elem(), reflect.Value{})}
	case kind == reflect.Struct && !slices.Contains(s.within, t):
		return s.ofStruct(path, t, defaults)
	case kind == reflect.Interface && t.NumMethod() == 0:
		return &schema{}
	case kind == reflect.Struct:
		s.problems.Add(path, "the type %s contains itself, which this schema cannot express", t)
	default:
		s.problems.Add(path, "JSON has no type for %s", t)
	}
	return &schema{}
}

func (s *schemas) ofStruct(path string, t reflect.Type, defaults reflect.Value) *schema {
	s.within = append(s.within, t)
	defer func() { s.within = s.within[:len(s.within)-1] }()
	made := &schema{Type: "object", Properties: make(map[string]*schema), Others: false}
	names, fields := fieldsOf(t)
	for _, name := range names {
		field, at := fields[name], join(path, name)
		var value reflect.Value
		if defaults.IsValid() {
			value, _ = defaults.FieldByIndexErr(field.Index) // behind a nil pointer there is none
		}
		property := s.of(at, field.Type, value)
		if s.tags(at, property, field.Tag) {
			made.Required = append(made.Required, name)
		} else if value.IsValid() && !value.IsZero() && property.Properties == nil {
			if encoded, err := json.Marshal(value.Interface()); err != nil {
				s.problems.Add(at, "cannot encode the default as JSON: %s", err)
			} else {
				property.Default = encoded
			}
		}
		made.Properties[name] = property
	}
	return made
}

// tags reads a field's tags, and reports whether the field is required.
func (s *schemas) tags(path string, of *schema, tag reflect.StructTag) (required bool) {
	of.Description = tag.Get("doc")
	if _, options, _ := strings.Cut(tag.Get("json"), ","); slices.Contains(strings.Split(options, ","), "string") {
		s.problems.Add(path, "json:\",string\" is not supported: a number must be a JSON number")
	}
	for _, rule := range strings.Split(tag.Get("check"), ",") {
		name, text, _ := strings.Cut(rule, "=")
		bound := map[string]map[string]**float64{
			"min": {"integer": &of.Minimum, "number": &of.Minimum, "string": &of.MinLength, "array": &of.MinItems, "object": &of.MinProperties},
			"max": {"integer": &of.Maximum, "number": &of.Maximum, "string": &of.MaxLength, "array": &of.MaxItems, "object": &of.MaxProperties},
		}[name][of.Type]
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case rule == "":
		case rule == "required":
			required = true
		case bound == nil || err != nil:
			s.problems.Add(path, "check:%q: want required, or min=N or max=N for a number, text, array or object", rule)
		default:
			*bound = &value
		}
	}
	if pattern, given := tag.Lookup("pattern"); given {
		var err error
		if of.matches, err = regexp.Compile(pattern); err != nil || of.Type != "string" {
			s.problems.Add(path, "pattern:%q: want a regular expression, for a string: %v", pattern, err)
		}
		of.Pattern = pattern
	}
	if values, given := tag.Lookup("enum"); given {
		if of.Enum = strings.Split(values, ","); of.Type != "string" {
			s.problems.Add(path, "enum:%q: want comma-separated texts, for a string", values)
		}
	}
	return required
}

func number(of float64) *float64 { return &of }

// checkDefaults checks the defaults in the schema.
func (s *schema) checkDefaults(problems *ConfigurationError, path string, document json.RawMessage) {
	var members map[string]json.RawMessage
	if s.Properties == nil || json.Unmarshal(document, &members) != nil {
		return
	}
	for name, property := range s.Properties {
		if property.Default != nil {
			property.check(problems, join(path, name), property.Default)
		}
		property.checkDefaults(problems, join(path, name), members[name])
	}
}

// check checks what tags demand of a value; Decode checks its type. No problem quotes the value, which may be a secret.
func (s *schema) check(problems *ConfigurationError, path string, value json.RawMessage) {
	value = bytes.TrimSpace(value)
	switch {
	case len(value) == 0 || s.Type == "":
	case string(value) == "null":
		problems.Add(path, "want a value, not null: leave it out for the default")
	case value[0] == '{' && s.Type == "object":
		s.checkObject(problems, path, value)
	case value[0] == '[' && s.Type == "array":
		var elements []json.RawMessage
		if json.Unmarshal(value, &elements) == nil {
			bounds(problems, path, len(elements), s.MinItems, s.MaxItems, "element", "elements")
			for n, element := range elements {
				s.Items.check(problems, join(path, strconv.Itoa(n)), element)
			}
		}
	case value[0] == '"' && s.Type == "string":
		var text string
		if json.Unmarshal(value, &text) != nil {
			return
		}
		bounds(problems, path, utf8.RuneCountInString(text), s.MinLength, s.MaxLength, "character", "characters")
		if s.matches != nil && !s.matches.MatchString(text) {
			problems.Add(path, "want what matches the pattern %s", s.Pattern)
		}
		if s.Enum != nil && !slices.Contains(s.Enum, text) {
			problems.Add(path, "want one of %s", strings.Join(s.Enum, ", "))
		}
	case s.Type == "integer" || s.Type == "number":
		got, err := strconv.ParseFloat(string(value), 64)
		switch {
		case err != nil:
		case s.Minimum != nil && got < *s.Minimum:
			problems.Add(path, "want at least %s", written(*s.Minimum))
		case s.Maximum != nil && got > *s.Maximum:
			problems.Add(path, "want at most %s", written(*s.Maximum))
		}
	}
}

func (s *schema) checkObject(problems *ConfigurationError, path string, value json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return
	}
	bounds(problems, path, len(members), s.MinProperties, s.MaxProperties, "entry", "entries")
	for _, name := range s.Required {
		if _, there := members[name]; !there {
			problems.Add(join(path, name), "it is required")
		}
	}
	others, _ := s.Others.(*schema)
	for _, member := range membersOf(&ConfigurationError{}, path, value) { // in document order
		if of := s.Properties[member.name]; of != nil {
			of.check(problems, join(path, member.name), member.value)
		} else if others != nil {
			others.check(problems, join(path, member.name), member.value)
		}
	}
}

func bounds(problems *ConfigurationError, path string, size int, least, most *float64, one, many string) {
	count := func(of float64) string {
		if of == 1 {
			return "1 " + one
		}
		return written(of) + " " + many
	}
	switch {
	case least != nil && float64(size) < *least:
		problems.Add(path, "want at least %s", count(*least))
	case most != nil && float64(size) > *most:
		problems.Add(path, "want at most %s", count(*most))
	}
}

func written(of float64) string { return strconv.FormatFloat(of, 'f', -1, 64) }
