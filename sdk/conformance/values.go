package conformance

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// texts are tried where a schema has a pattern.
var texts = []string{
	"a", "abc", "a1", "1", "a-b", "a.example", "/a", "/srv/a", "127.0.0.1:0", "127.0.0.1", ":0", "[::1]:0", "http://a.example/", "1s", "10m", "1Mi", "a:b", "a@b.example", "0123456789abcdef",
	"A", "2006-01-02", "00000000-0000-4000-8000-000000000000", "",
}

// example makes a value that matches a part of the schema. whole puts a value into its place in a document, so that the schema itself judges.
func (s *schema) example(node any, whole func(any) any, deep int) (any, bool) {
	if deep > 16 {
		return nil, false
	}
	for _, candidate := range s.candidates(s.resolve(node), whole, deep) {
		if s.fits(whole(candidate)) {
			return candidate, true
		}
	}
	return nil, false
}

func (s *schema) candidates(node map[string]any, whole func(any) any, deep int) (found []any) {
	add := func(value any) { found = append(found, value) }
	if value, ok := node["default"]; ok {
		add(value)
	}
	if examples, ok := node["examples"].([]any); ok {
		found = append(found, examples...)
	}
	if value, ok := node["const"]; ok {
		add(value)
	}
	if values, ok := node["enum"].([]any); ok {
		found = append(found, values...)
	}
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		branches, _ := node[keyword].([]any)
		for _, branch := range branches {
			if deep < 16 {
				found = append(found, s.candidates(s.resolve(branch), whole, deep+1)...)
			}
		}
	}
	types := typesOf(node)
	if len(types) == 0 {
		types = []string{"object", "string", "integer", "boolean", "array"}
	}
	for _, of := range types {
		switch of {
		case "boolean":
			add(true)
			add(false)
		case "null":
			add(nil)
		case "integer", "number":
			for _, keyword := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"} {
				if bound, ok := node[keyword].(json.Number); ok {
					add(bound)
					add(plus(bound, 1))
					add(plus(bound, -1))
				}
			}
			add(json.Number("1"))
			add(json.Number("0"))
		case "string":
			least, _ := integer(node, "minLength")
			for _, text := range texts {
				add(text)
				if len(text) < least && text != "" {
					add(strings.Repeat(text, least/len(text)+1)[:least])
				}
			}
		case "array":
			add(s.list(node, whole, deep))
		case "object":
			add(s.object(node, deep))
		}
	}
	return found
}

// list makes the shortest array.
func (s *schema) list(node map[string]any, whole func(any) any, deep int) any {
	made := []any{}
	least, _ := integer(node, "minItems")
	for range min(least, 64) {
		item, ok := s.example(node["items"], func(value any) any { return whole(append(slices.Clone(made), value)) }, deep+1)
		if !ok {
			// All items may be needed to match.
			item, _ = s.part(node["items"], deep+1)
		}
		made = append(made, item)
	}
	return made
}

// object makes an object with only the required members.
func (s *schema) object(node map[string]any, deep int) any {
	made := map[string]any{}
	required, _ := node["required"].([]any)
	properties, _ := node["properties"].(map[string]any)
	for _, name := range required {
		if name, ok := name.(string); ok {
			made[name], _ = s.part(properties[name], deep+1)
		}
	}
	return made
}

// part makes a value for a part of the schema alone, while the document around it is incomplete.
func (s *schema) part(node any, deep int) (any, bool) {
	resolved := s.resolve(node)
	text := document(resolved)
	alone, err := readSchema(text)
	if err != nil || deep > 16 {
		// It depends on other parts, so only the whole document can be judged later.
		if candidates := s.candidates(resolved, func(value any) any { return value }, deep); len(candidates) > 0 {
			return candidates[0], true
		}
		return nil, false
	}
	return alone.example(resolved, func(value any) any { return value }, deep)
}

// with returns an object with a member set.
func with(object any, name string, value any) any {
	members, _ := object.(map[string]any)
	made := maps.Clone(members)
	if made == nil {
		made = map[string]any{}
	}
	made[name] = value
	return made
}

// without returns an object without a member.
func without(object any, name string) any {
	members, _ := object.(map[string]any)
	made := maps.Clone(members)
	delete(made, name)
	return made
}

// plus adds to a JSON number.
func plus(number json.Number, by int64) json.Number {
	if whole, err := number.Int64(); err == nil {
		return json.Number(formatInteger(whole + by))
	}
	value, _ := number.Float64()
	return json.Number(formatFloat(value + float64(by)))
}
