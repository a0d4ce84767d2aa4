package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Configuration returns a JSON document of the same structure in which every value says only of what kind and how long it was. An empty document stays
// empty; one that is not JSON is left out as a whole.
func Configuration(document string) string {
	if document == "" {
		return ""
	}
	value, err := decode(document)
	if err != nil {
		return fmt.Sprintf("%q", fmt.Sprintf("<%d bytes that are not JSON>", len(document)))
	}
	return encode(walk(value, "", func(_ string, leaf any) any { return kind(leaf) }))
}

// Value says how long a value was, in its place.
func Value(value string) string { return kind(value).(string) }

func kind(leaf any) any {
	switch leaf := leaf.(type) {
	case nil:
		return nil
	case string:
		return fmt.Sprintf("<string, %d bytes>", len(leaf))
	case bool:
		return "<bool>"
	default:
		return "<number>"
	}
}

func decode(document string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	return value, nil
}

func encode(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // What was decoded can be encoded.
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// walk returns a value in which change has replaced every leaf. It is told the key under which the leaf is: the outermost one that says of a secret, or the
// innermost one.
func walk(value any, key string, change func(key string, leaf any) any) any {
	switch value := value.(type) {
	case map[string]any:
		changed := make(map[string]any, len(value))
		for name, inner := range value {
			under := name
			if isSecret(key) {
				under = key
			}
			changed[name] = walk(inner, under, change)
		}
		return changed
	case []any:
		changed := make([]any, 0, len(value))
		for _, inner := range value {
			changed = append(changed, walk(inner, key, change))
		}
		return changed
	default:
		return change(key, value)
	}
}

// shortest is how long a value must be to be looked for in texts: a shorter one would be found in words that have nothing to do with it.
const shortest = 8

// Secrets returns the values of a JSON document that could be secrets: those under a key that says so, and all others that are not evidently something
// else, such as an address, a path or a word.
func Secrets(document string) []string {
	value, err := decode(document)
	if err != nil {
		return nil
	}
	var secrets []string
	walk(value, "", func(key string, leaf any) any {
		var text string
		switch leaf := leaf.(type) {
		case string:
			text = leaf
		case json.Number:
			if isSecret(key) {
				text = leaf.String()
			}
		}
		if len(text) >= shortest && utf8.ValidString(text) && (isSecret(key) || !evident(text)) {
			secrets = append(secrets, text)
		}
		return leaf
	})
	return secrets
}

var word = regexp.MustCompile(`^[A-Za-z]+([ ._-][A-Za-z]+)*$`)

// evident says whether a value is something that logs and states are about, and that is no secret in itself.
func evident(text string) bool {
	if word.MatchString(text) || strings.HasPrefix(text, "/") || net.ParseIP(text) != nil {
		return true
	}
	if _, _, err := net.ParseCIDR(text); err == nil {
		return true
	}
	if host, _, err := net.SplitHostPort(text); err == nil && !strings.ContainsAny(host, " /@") {
		return true
	}
	address, err := url.Parse(text)
	return err == nil && address.Scheme != "" && address.Host != "" && address.User == nil && address.RawQuery == ""
}

// JSON returns a JSON document without its secrets: the values under keys that say so, and what Text takes out of the others and of the keys. A document
// without any is returned as it is; one that is not JSON is a text.
func (r *Redactor) JSON(document string) string {
	value, err := decode(document)
	if err != nil {
		return r.Text(document)
	}
	before := r.count
	value = r.value(value, "")
	if r.count == before {
		return document
	}
	return encode(value)
}

func (r *Redactor) value(value any, key string) any {
	switch value := value.(type) {
	case map[string]any:
		if isSecret(key) && len(value) > 0 {
			// Its keys may be secrets, too.
			r.count++
			return Mark
		}
		changed := make(map[string]any, len(value))
		for key, inner := range value {
			changed[r.Text(key)] = r.value(inner, key)
		}
		return changed
	case []any:
		changed := make([]any, 0, len(value))
		for i, inner := range value {
			under := key
			// The arguments of a call: one that is an option, and its value.
			if option, ok := before(value, i).(string); ok && strings.HasPrefix(option, "-") && !strings.ContainsAny(option, "= ") {
				if isSecret(option) {
					under = option
				} else if text, ok := inner.(string); ok && loginName.MatchString(option) {
					inner = strings.TrimPrefix(r.Text(option+" "+text), option+" ")
				}
			}
			changed = append(changed, r.value(inner, under))
		}
		return changed
	case string:
		if value != "" && value != Mark && isSecret(key) && !isDirectory(key, value) {
			r.count++
			return Mark
		}
		return r.Text(value)
	case json.Number:
		if isSecret(key) && !plain.MatchString(value.String()) {
			r.count++
			return Mark
		}
		// As a text it is one that may be known.
		if changed := r.Text(value.String()); changed != value.String() {
			return changed
		}
		return value
	default:
		return value
	}
}

// before returns the element before one; nil: there is none.
func before(list []any, i int) any {
	if i == 0 {
		return nil
	}
	return list[i-1]
}

// Lines returns a text of lines without its secrets, each of which may be a JSON document, as those of a log are.
func (r *Redactor) Lines(text string) string {
	// What goes over several lines first.
	text = r.keys(text)
	var result strings.Builder
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(trimmed, "{") {
			result.WriteString(r.JSON(trimmed))
		} else {
			result.WriteString(r.Text(trimmed))
		}
		result.WriteString(line[len(trimmed):])
	}
	return result.String()
}
