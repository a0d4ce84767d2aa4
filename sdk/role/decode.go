package role

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Decode decodes a configuration into a pointer to a struct. It uses encoding/json's field tags but is strict: unknown fields (names are compared
// exactly), duplicate fields and values that do not fit are problems. The *ConfigurationError has all of them with their paths, and into is then
// unchanged. An empty document leaves into unchanged, so that it may hold the defaults.
//
// No problem quotes a value, which may be a secret: problems appear in the node's status, events and log. The error of a type that decodes itself and
// is not in the standard library is shown, so it must not quote values either.
func Decode(document []byte, into any) error {
	if len(bytes.TrimSpace(document)) == 0 {
		return nil
	}
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("role: Decode into %T: want a pointer that is not nil", into)
	}
	problems := &ConfigurationError{}
	if err := validJSON(document); err != nil {
		problems.Add("", "%s", err)
		return problems
	}
	check(problems, "", document, target.Type().Elem())
	if err := problems.Err(); err != nil {
		return err
	}
	if err := json.Unmarshal(document, into); err != nil {
		problems.Add("", "%s", err)
	}
	return problems.Err()
}

// validJSON returns where a document stops being JSON.
func validJSON(document []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(document, &whole)
	if err == nil {
		return nil
	}
	if syntax, ok := err.(*json.SyntaxError); ok {
		before := document[:min(int(syntax.Offset), len(document))]
		return fmt.Errorf("not JSON: line %d: %w", bytes.Count(before, []byte("\n"))+1, err)
	}
	return fmt.Errorf("not JSON: %w", err)
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// check compares a valid JSON value with its target type.
func check(problems *ConfigurationError, path string, value json.RawMessage, want reflect.Type) {
	value = bytes.TrimSpace(value)
	for want.Kind() == reflect.Pointer && !decodesItself(want) {
		want = want.Elem()
	}
	if string(value) == "null" {
		return // as in encoding/json, it changes nothing
	}
	if !decodesItself(want) {
		switch kind := want.Kind(); {
		case kind == reflect.Struct && value[0] == '{':
			checkStruct(problems, path, value, want)
			return
		case kind == reflect.Map && value[0] == '{':
			for _, member := range membersOf(problems, path, value) {
				check(problems, join(path, member.name), member.value, want.Elem())
			}
			return
		case kind == reflect.Slice && value[0] == '[' || kind == reflect.Array && value[0] == '[':
			var elements []json.RawMessage
			if err := json.Unmarshal(value, &elements); err != nil {
				problems.Add(path, "%s", err)
			}
			for n, element := range elements {
				check(problems, join(path, strconv.Itoa(n)), element, want.Elem())
			}
			return
		}
	}
	if err := json.Unmarshal(value, reflect.New(want).Interface()); err != nil {
		switch {
		case decodesItself(want) && ofStandardLibrary(want):
			problems.Add(path, "it is not a %s", want) // the error of such a type quotes the value
		case decodesItself(want):
			problems.Add(path, "%s", err)
		default:
			problems.Add(path, "want %s, not %s", nameOfType(want), nameOfValue(value, want))
		}
	}
}

func checkStruct(problems *ConfigurationError, path string, value json.RawMessage, want reflect.Type) {
	names, fields := fieldsOf(want)
	for _, member := range membersOf(problems, path, value) {
		field, known := fields[member.name]
		if !known {
			problems.Add(join(path, member.name), "no such field; the fields are %s", strings.Join(names, ", "))
			continue
		}
		check(problems, join(path, member.name), member.value, field.Type)
	}
}

// fieldsOf returns the fields of a struct by JSON name, and the names in order.
func fieldsOf(of reflect.Type) (names []string, fields map[string]reflect.StructField) {
	fields = make(map[string]reflect.StructField)
	for _, field := range reflect.VisibleFields(of) {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "-" || !field.IsExported() || field.Anonymous && tag == "" && field.Type.Kind() == reflect.Struct {
			continue
		}
		if tag == "" {
			tag = field.Name
		}
		if _, shadowed := fields[tag]; !shadowed {
			fields[tag] = field
			names = append(names, tag)
		}
	}
	return names, fields
}

type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of a JSON object in order. A duplicate is a problem.
func membersOf(problems *ConfigurationError, path string, object json.RawMessage) []member {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.Token(); err != nil { // '{'
		problems.Add(path, "%s", err)
		return nil
	}
	var members []member
	seen := make(map[string]bool)
	for decoder.More() {
		token, err := decoder.Token()
		name, isName := token.(string)
		var value json.RawMessage
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil || !isName {
			problems.Add(path, "not a JSON object: %v", err)
			return members
		}
		if seen[name] {
			problems.Add(join(path, name), "duplicate field")
			continue
		}
		seen[name] = true
		members = append(members, member{name: name, value: value})
	}
	return members
}

func decodesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(jsonUnmarshaler) || pointer.Implements(textUnmarshaler)
}

// join appends a token to a JSON Pointer.
func join(path, token string) string {
	return path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

func nameOfType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number of at most " + strconv.Itoa(t.Bits()) + " bits"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return "a whole number of at most " + strconv.Itoa(t.Bits()) + " bits that is not negative"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return t.String()
}

// ofStandardLibrary uses the go command's rule that other import paths begin with an element with a dot. A program's main package is not in the
// standard library.
func ofStandardLibrary(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	first, _, _ := strings.Cut(t.PkgPath(), "/")
	return first != "" && first != "main" && !strings.Contains(first, ".")
}

func nameOfValue(value json.RawMessage, want reflect.Type) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return string(value)
	}
	if kind := want.Kind(); kind >= reflect.Int && kind <= reflect.Float64 {
		return "this one"
	}
	return "a number"
}
