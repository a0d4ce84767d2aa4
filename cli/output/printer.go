package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"
)

// Format is how a command prints its document.
type Format string

// The formats.
const (
	// Table is for people and may change from version to version.
	Table Format = "table"
	// JSON is for programs: fields are only ever added.
	JSON Format = "json"
	// YAML is the same document as JSON.
	YAML Format = "yaml"
)

// Formats are all formats.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// Set implements the value of a flag.
func (f *Format) Set(text string) error {
	switch Format(text) {
	case Table, JSON, YAML:
		*f = Format(text)
		return nil
	default:
		return fmt.Errorf("%q is not a format: it is table, json or yaml", text)
	}
}

// String implements the value of a flag.
func (f *Format) String() string { return string(*f) }

// Type implements the value of a flag.
func (f *Format) Type() string { return "table|json|yaml" }

// Document is what a command prints.
type Document interface {
	// table writes the document for people, columns separated by tabs.
	table(w io.Writer, now time.Time)
}

// Print writes a document. now is what the ages in tables are counted from.
func Print(w io.Writer, format Format, document Document, now time.Time) error {
	switch format {
	case JSON:
		return printJSON(w, document, "  ")
	case YAML:
		return printYAML(w, document)
	}
	columns := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.StripEscape)
	document.table(columns, now)
	return columns.Flush()
}

// encode returns a document as JSON in one line. It may go to a terminal, so it escapes the control characters that JSON leaves as they are.
func encode(document Document) (string, error) {
	var e encoder
	err := e.value(reflect.ValueOf(document))
	return escaped(e.String()), err
}

// printJSON writes a document in one line, or with an indentation.
func printJSON(w io.Writer, document Document, indent string) error {
	text, err := encode(document)
	if err != nil {
		return err
	}
	if indent != "" {
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(text), "", indent); err != nil {
			return err
		}
		text = indented.String()
	}
	_, err = io.WriteString(w, text+"\n")
	return err
}

// escaped returns JSON in which DEL and the control characters of C1 are escapes: some begin a sequence as ESC does. They are in texts only.
func escaped(document string) string {
	var result strings.Builder
	for _, r := range document {
		if r >= 0x7f && r <= 0x9f {
			_, _ = fmt.Fprintf(&result, `\u%04x`, r)
		} else {
			result.WriteRune(r)
		}
	}
	return result.String()
}

// printYAML writes the document that JSON would be, so that both have the same fields.
func printYAML(w io.Writer, document Document) error {
	inJSON, err := encode(document)
	if err != nil {
		return err
	}
	// Written again: a record of a role has JSON that YAML does not read, such as the escape \/, those of surrogates, and a name that is there twice.
	var value any
	decoder := json.NewDecoder(strings.NewReader(inJSON))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	again, err := json.Marshal(value)
	if err != nil {
		return err
	}
	// YAML reads no control characters, and writes them as escapes.
	text, err := yaml.JSONToYAML([]byte(escaped(string(again))))
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// PrintNext writes one of a stream of documents: in JSON each is one line, in YAML each begins with a line "---". In a table each is what Print writes.
func PrintNext(w io.Writer, format Format, document Document, now time.Time) error {
	switch format {
	case JSON:
		return printJSON(w, document, "")
	case YAML:
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	return Print(w, format, document, now)
}

// row writes the cells of a line, "-" for those that are empty. Text from elsewhere must not break the lines or columns, or reach the
// terminal as a control sequence.
func row(w io.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = Clean(cell)
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// Clean returns text with every character that is not printed replaced by a space, also those that turn the direction of writing: what a role says of
// itself is shown, and must not move the cursor or look like something else.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// CleanLines is Clean for a text of several lines.
func CleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Clean(line)
	}
	return strings.Join(lines, "\n")
}
