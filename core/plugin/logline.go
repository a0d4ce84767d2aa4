package plugin

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/proto/limits"
)

const (
	// maxLine is how much of a line is looked at, in bytes. The file keeps all of it.
	maxLine = 8 << 10
	// maxField and maxFields bound what one line brings into the core's log.
	maxField  = 1 << 10
	maxFields = 32
	maxKey    = 64
)

// logLine is what the core's log says of a line that a role wrote. Nothing in it can break the log: it has no control characters, and
// none of its fields has a name that the core itself uses.
type logLine struct {
	level   hclog.Level
	message string
	fields  []any // keys and values in turn, by key
}

// text is the line as people read it in a reason.
func (l logLine) text() string {
	for i := 0; i+1 < len(l.fields); i += 2 {
		if key := l.fields[i]; key == "error" || key == "err" {
			if value, ok := l.fields[i+1].(string); ok {
				return l.message + ": " + value
			}
		}
	}
	return l.message
}

// parseLine reads a line, which is anything that a role may write. A line of JSON as hclog writes it keeps its level, message and fields;
// every other is its own message, at level Info.
func parseLine(line []byte) logLine {
	line = bytes.TrimRight(line, "\r\n")
	shortened := len(line) > maxLine
	line = line[:min(len(line), maxLine)]
	if !shortened && bytes.HasPrefix(line, []byte("{")) {
		if parsed, ok := parseJSON(line); ok {
			return parsed
		}
	}
	message := clean(string(line))
	if shortened {
		message += " [cut]"
	}
	return logLine{level: hclog.Info, message: message}
}

func parseJSON(line []byte) (logLine, bool) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var object map[string]any
	if decoder.Decode(&object) != nil || object == nil || len(bytes.TrimSpace(line[decoder.InputOffset():])) > 0 {
		return logLine{}, false
	}
	message, ok := object["@message"].(string)
	if !ok {
		return logLine{}, false
	}
	parsed := logLine{level: hclog.Info, message: clean(message)}
	if level, ok := object["@level"].(string); ok {
		switch known := hclog.LevelFromString(level); known {
		case hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn, hclog.Error:
			parsed.level = known
		}
	}
	if module, ok := object["@module"].(string); ok && module != "" {
		parsed.fields = append(parsed.fields, "module", clean(cut(module, maxKey)))
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if strings.HasPrefix(key, "@") {
			continue // hclog's own: the core writes them anew
		}
		if len(parsed.fields) >= 2*maxFields {
			parsed.fields = append(parsed.fields, "more_fields", "cut")
			break
		}
		parsed.fields = append(parsed.fields, fieldName(key), fieldValue(object[key]))
	}
	return parsed, true
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// fieldName is a key that says nothing which is the core's to say: who wrote the line, and when.
func fieldName(key string) string {
	name := notInNames.ReplaceAllString(cut(key, maxKey), "_")
	switch name {
	case "", "role", "instance", "module", "more_fields", "timestamp", "level", "message", "error_key", hclog.MissingKey:
		return "_" + name
	}
	return name
}

func fieldValue(value any) any {
	switch value := value.(type) {
	case string:
		return clean(cut(value, maxField))
	case bool:
		return value
	case json.Number:
		return clean(cut(value.String(), maxField))
	case nil:
		return "null"
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	return clean(cut(string(encoded), maxField))
}

// clean escapes what a terminal or a log could take for something else than text: control characters, line ends, marks that turn the
// direction of writing, and bytes that are not UTF-8.
func clean(text string) string {
	if limits.Line(text) {
		return text
	}
	ok := func(r rune) bool { return r == ' ' || unicode.IsPrint(r) }
	var cleaned strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r != utf8.RuneError && ok(r) || r == utf8.RuneError && size > 1 {
			cleaned.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			cleaned.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return cleaned.String()
}

func cut(text string, size int) string { return limits.Cut(text, size) }
