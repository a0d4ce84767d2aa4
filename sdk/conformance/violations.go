package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// violation is a configuration that violates one constraint of the schema.
type violation struct {
	// path and keyword say which constraint.
	path, keyword string
	// accepted are the paths that a problem may name for it.
	accepted []string
	document string
}

func (v violation) String() string {
	return fmt.Sprintf("%s of %s", v.keyword, orDocument(v.path))
}

func orDocument(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

// keywords are those that constrain a value by themselves.
var keywords = []string{
	"type", "enum", "const", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems",
	"minProperties", "maxProperties", "required", "additionalProperties", "propertyNames", "dependentRequired", "contains", "anyOf", "oneOf", "not", "if",
}

// noSuchField is a member that no configuration has.
const noSuchField = "no_such_field_of_a_configuration"

// violations violates every constraint of the schema once, in an otherwise valid configuration. untried are those without a value that violates them.
func (s *schema) violations(base any) (found []violation, untried []string) {
	s.walk(s.root, "", base, func(value any) any { return value }, 0, &found, &untried)
	return found, untried
}

// walk violates the constraints of a part of the schema on the value at a path. value matches there, and whole puts another value in its place.
func (s *schema) walk(part any, path string, value any, whole func(any) any, deep int, found *[]violation, untried *[]string) {
	node := s.resolve(part)
	if deep > 16 || node == nil {
		return
	}
	for _, keyword := range keywords {
		if _, said := node[keyword]; !said {
			continue
		}
		if keyword == "required" {
			names, _ := node[keyword].([]any)
			for _, name := range names {
				if name, ok := name.(string); ok {
					s.try(path, keyword, []any{without(value, name)}, []string{path, join(path, name)}, whole, found, untried)
				}
			}
			continue
		}
		accepted := []string{path}
		if keyword == "additionalProperties" || keyword == "propertyNames" {
			if node[keyword] != false && keyword == "additionalProperties" {
				continue
			}
			accepted = append(accepted, join(path, noSuchField))
		}
		s.try(path, keyword, broken(keyword, node, value), accepted, whole, found, untried)
	}
	branches, _ := node["allOf"].([]any)
	for _, branch := range branches {
		s.walk(branch, path, value, whole, deep+1, found, untried)
	}
	properties, _ := node["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		within := func(member any) any { return whole(with(value, name, member)) }
		member, ok := s.example(properties[name], within, 0)
		if !ok {
			*untried = append(*untried, "all of "+join(path, name))
			continue
		}
		s.walk(properties[name], join(path, name), member, within, deep+1, found, untried)
	}
	if items, ok := node["items"]; ok {
		within := func(item any) any {
			list, _ := value.([]any)
			return whole(append([]any{item}, list[min(1, len(list)):]...))
		}
		item, ok := s.example(items, within, 0)
		if !ok {
			*untried = append(*untried, "all of "+join(path, "0"))
			return
		}
		s.walk(items, join(path, "0"), item, within, deep+1, found, untried)
	}
}

// try takes the first value that violates the keyword at the path, as judged by the schema.
func (s *schema) try(path, keyword string, values []any, accepted []string, whole func(any) any, found *[]violation, untried *[]string) {
	for _, value := range values {
		text := document(whole(value))
		parsed, err := parse(text)
		if err != nil || !slices.Contains(s.misfits(parsed), misfit{path, keyword}) {
			continue
		}
		*found = append(*found, violation{path, keyword, accepted, text})
		return
	}
	*untried = append(*untried, violation{path: path, keyword: keyword}.String())
}

// others are values of all types; the first one of a wrong type is used. None is null, because many treat null as missing.
func others() []any {
	return []any{"no such value", json.Number("-987654321"), json.Number("0.125"), true, map[string]any{noSuchField: true}, []any{true}}
}

// broken returns values that may violate a keyword, the likeliest first.
func broken(keyword string, node map[string]any, value any) []any {
	number, _ := node[keyword].(json.Number)
	count, _ := integer(node, keyword)
	text, _ := value.(string)
	list, _ := value.([]any)
	switch keyword {
	case "minimum":
		return []any{plus(number, -1)}
	case "maximum":
		return []any{plus(number, 1)}
	case "exclusiveMinimum", "exclusiveMaximum":
		return []any{number}
	case "multipleOf":
		half, _ := number.Float64()
		return []any{plus(number, 1), json.Number(formatFloat(half * 1.5))}
	case "minLength":
		return []any{text[:min(len(text), max(count-1, 0))], strings.Repeat("a", max(count-1, 0))}
	case "maxLength":
		return []any{strings.Repeat("a", count+1), text + strings.Repeat("a", count+1)}
	case "pattern":
		return []any{"~ no such value", "\u0001", "-", "", "/", "A", "a"}
	case "minItems":
		return []any{list[:min(len(list), max(count-1, 0))]}
	case "maxItems":
		return []any{grown(list, count+1)}
	case "uniqueItems":
		return []any{grown(list, 2), append(slices.Clone(list), list...)}
	case "additionalProperties", "propertyNames":
		return []any{with(value, noSuchField, true)}
	case "minProperties":
		return []any{map[string]any{}}
	}
	return others()
}

// grown returns a list of a given length.
func grown(list []any, length int) []any {
	made := slices.Clone(list)
	for len(made) < length && length < 10_000 {
		if len(list) > 0 {
			made = append(made, list[0])
		} else {
			made = append(made, "a")
		}
	}
	return made
}

func formatInteger(value int64) string { return strconv.FormatInt(value, 10) }

func formatFloat(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
