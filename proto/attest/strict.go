package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/reeveproject/reeve/proto/limits"
)

// maxDepth is how deep JSON may be nested; a statement needs 5.
const maxDepth = 16

// decode reads a document so that no two readers could take it for two things: encoding/json alone takes the last of two fields of one name, and fields of which the
// name is written in other letters. The names that are known are those of the fields of what is decoded into; others are skipped.
func decode(text []byte, into any) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := walk(decoder, names(reflect.TypeOf(into), nil), 0); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return json.Unmarshal(text, into)
}

// walk reads a value and what is in it.
func walk(decoder *json.Decoder, known []string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	opened, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := make(map[string]bool)
	for decoder.More() {
		if opened == '{' {
			key, err := decoder.Token()
			if err != nil {
				return err
			}
			name := key.(string) // the decoder takes nothing else
			if seen[name] {
				return fmt.Errorf("the field %s is there twice", quote(name))
			}
			seen[name] = true
			for _, exact := range known {
				if name != exact && strings.EqualFold(name, exact) {
					return fmt.Errorf("the field %s is not written as %q", quote(name), exact)
				}
			}
		}
		if err := walk(decoder, known, depth+1); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}

// names collects the names of the fields of a type and of all that is in it.
func names(of reflect.Type, known []string) []string {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return names(of.Elem(), known)
	case reflect.Struct:
		for n := range of.NumField() {
			if name, _, _ := strings.Cut(of.Field(n).Tag.Get("json"), ","); name != "" {
				known = names(of.Field(n).Type, append(known, name))
			}
		}
	}
	return known
}

// quote shows what somebody else has written, without letting it grow the message.
func quote(text string) string { return fmt.Sprintf("%q", limits.Cut(text, 64)) }
