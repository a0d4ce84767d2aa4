package logline

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Record is a line that is a JSON object with a message.
type Record struct {
	// Time is zero where the record has none in RFC 3339.
	Time time.Time
	// Level is in lower case as the role wrote it; empty: it wrote none.
	Level string
	// Module is what wrote the record, as the role names it; may be empty.
	Module  string
	Message string
	// Fields are the rest, sorted by name.
	Fields []Field
}

// Field is a field of a record.
type Field struct {
	Name string
	// Value is JSON in one line.
	Value json.RawMessage
}

// The names of what every record has: hclog's, those of log/slog, and zap's.
var (
	timeNames    = []string{"@timestamp", "time", "ts"}
	levelNames   = []string{"@level", "level"}
	moduleNames  = []string{"@module", "logger"}
	messageNames = []string{"@message", "msg", "message"}
)

// Parse reads a line. It returns false for a line that is no record.
func Parse(line []byte) (Record, bool) {
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
		return Record{}, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return Record{}, false
	}
	message, ok := take(fields, messageNames)
	if !ok {
		return Record{}, false
	}
	record := Record{Message: message}
	record.Level, _ = take(fields, levelNames)
	record.Module, _ = take(fields, moduleNames)
	for _, name := range timeNames {
		if at, err := time.Parse(time.RFC3339Nano, text(fields[name])); err == nil {
			record.Time = at
			delete(fields, name)
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		record.Fields = append(record.Fields, Field{Name: name, Value: fields[name]})
	}
	return record, true
}

// take removes the first of the fields that is there and a text, and returns it.
func take(fields map[string]json.RawMessage, names []string) (string, bool) {
	for _, name := range names {
		if value := fields[name]; len(value) > 0 && value[0] == '"' {
			delete(fields, name)
			return text(value), true
		}
	}
	return "", false
}

// text decodes a text; empty: it is none.
func text(value json.RawMessage) (decoded string) {
	_ = json.Unmarshal(value, &decoded)
	return decoded
}

// coreModule is the module of what the core itself writes into the log of a role.
const coreModule = "reeved"

// beginning is the line that the core writes where an instance begins.
type beginning struct {
	Level    string    `json:"@level"`
	Message  string    `json:"@message"`
	Module   string    `json:"@module"`
	Time     time.Time `json:"@timestamp"`
	Instance string    `json:"instance"`
}

// beginningMessage is how a beginning is known.
const beginningMessage = "the instance begins here"

// Begin returns the line, with its end, that stands before all that an instance writes.
func Begin(instanceID string, at time.Time) []byte {
	// It cannot fail: the time is the clock's.
	line, _ := json.Marshal(beginning{Level: "info", Message: beginningMessage, Module: coreModule, Time: at.UTC(), Instance: instanceID})
	return append(line, '\n')
}

// Begins returns the ID of the instance that begins with a line; empty: none does. A role can write such a line too, which misleads about its own log only.
func Begins(line []byte) (instanceID string) {
	if !bytes.Contains(line, []byte(beginningMessage)) {
		return ""
	}
	var read beginning
	if json.Unmarshal(line, &read) != nil || read.Message != beginningMessage || read.Module != coreModule {
		return ""
	}
	return read.Instance
}
