package redact

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Change is a value in which two configurations differ.
type Change struct {
	// Path is where it is, as a JSON pointer (RFC 6901); "/" is the whole document.
	Path string `json:"path"`
	// Before and After are the values, or of what kind and how long they are. Empty: there is none.
	Before string `json:"before"`
	After  string `json:"after"`
}

// Changes are the values in which two JSON documents differ, sorted by path. Without show they say only of what kind and how long the values are, as those of Configuration do.
// An empty document has none, and one that is not JSON is one value.
func Changes(before, after string, show bool) []Change {
	was, is := leaves(before), leaves(after)
	paths := make(map[string]bool)
	for path := range was {
		paths[path] = true
	}
	for path := range is {
		paths[path] = true
	}
	changes := []Change{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if was[path] == is[path] {
			continue
		}
		changes = append(changes, Change{Path: path, Before: was[path].text(show), After: is[path].text(show)})
	}
	return changes
}

// leaf is a value of a document; its zero value is none.
type leaf struct{ value, kind string }

func (l leaf) text(show bool) string {
	if show {
		return l.value
	}
	return l.kind
}

// leaves are the values of a document by their paths. Empty objects and lists are values, too.
func leaves(document string) map[string]leaf {
	found := make(map[string]leaf)
	if document == "" {
		return found
	}
	value, err := decode(document)
	if err != nil {
		found["/"] = leaf{document, fmt.Sprintf("<%d bytes that are not JSON>", len(document))}
		return found
	}
	var add func(path string, value any)
	add = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				add(path+"/"+escaper.Replace(name), inner)
			}
			if len(value) > 0 {
				return
			}
		case []any:
			for n, inner := range value {
				add(fmt.Sprintf("%s/%d", path, n), inner)
			}
			if len(value) > 0 {
				return
			}
		}
		if path == "" {
			path = "/"
		}
		text := encode(value)
		switch value.(type) {
		case map[string]any, []any:
			found[path] = leaf{text, text}
		default:
			found[path] = leaf{text, strings.Trim(encode(kind(value)), `"`)}
		}
	}
	add("", value)
	return found
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")
