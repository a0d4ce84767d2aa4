package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/logline"
)

// LogLine is a line of a role's log: `reeve logs -o json` prints one such document after another.
type LogLine struct {
	// Line is the line as the role wrote it.
	Line string `json:"line"`
	// Record is the line where it is a record in JSON; null: it is none.
	Record json.RawMessage `json:"record"`
}

// NewLogLine makes the document of a line without its end.
func NewLogLine(line string) LogLine {
	if _, ok := logline.Parse([]byte(line)); !ok {
		return LogLine{Line: line}
	}
	return LogLine{Line: line, Record: json.RawMessage(line)}
}

// logTime is the time of a record for people, always in UTC so that the logs of several nodes can be compared.
const logTime = "2006-01-02T15:04:05.000Z"

func (l LogLine) table(w io.Writer, _ time.Time) {
	record, ok := logline.Parse(l.Record)
	if !ok {
		_, _ = fmt.Fprintln(w, Clean(l.Line))
		return
	}
	var text strings.Builder
	if at := record.Time; !at.IsZero() {
		text.WriteString(at.UTC().Format(logTime) + " ")
	}
	_, _ = fmt.Fprintf(&text, "%-5s ", strings.ToUpper(record.Level))
	if record.Module != "" {
		text.WriteString(record.Module + ": ")
	}
	text.WriteString(record.Message)
	for _, field := range record.Fields {
		text.WriteString(" " + field.Name + "=" + logValue(field.Value))
	}
	_, _ = fmt.Fprintln(w, Clean(text.String()))
}

// logValue is the value of a field for people: a text without quotes where it is one word, all else as JSON.
func logValue(value json.RawMessage) string {
	var word string
	if json.Unmarshal(value, &word) != nil || value[0] != '"' {
		return string(value)
	}
	if word == "" || strings.ContainsAny(word, " =\"") || strconv.Quote(word) != `"`+word+`"` {
		return strconv.Quote(word)
	}
	return word
}
