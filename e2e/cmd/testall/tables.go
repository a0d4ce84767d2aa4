package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// table is what a test has to show beside whether it passed. Tests write them to var/test/tables.
type table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	// Failed is how many rows are not as they must be.
	Failed int `json:"failed"`
}

// widest is how many characters a cell has at most in a line; what is longer goes on in the next.
const widest = 38

// forgetTables removes the tables of earlier runs.
func forgetTables(results string) error { return os.RemoveAll(filepath.Join(results, "tables")) }

// printTables prints all tables that tests have left. One whose rows are not all as they must be counts as failed, and so does one that cannot be read: a
// test that writes a table must not pass while the table says otherwise.
func printTables(results string, total *tally, out io.Writer) {
	files, err := filepath.Glob(filepath.Join(results, "tables", "*.json"))
	if err != nil {
		total.problem("the tables of the tests: %v", err)
	}
	slices.Sort(files)
	for _, file := range files {
		var t table
		content, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(content, &t)
		}
		if err != nil || len(t.Rows) == 0 {
			total.problem("the table %s cannot be read: %v", file, err)
			continue
		}
		t.print(out)
		if t.Failed > 0 {
			total.problem("%s: %d of %d rows are not as they must be", t.Title, t.Failed, len(t.Rows))
		}
	}
}

func (t table) print(out io.Writer) {
	say(out, "\n%s (%d rows):", t.Title, len(t.Rows))
	var lines [][]string
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		cells := make([][]string, len(row))
		height := 1
		for i, cell := range row {
			cells[i] = wrap(cell)
			height = max(height, len(cells[i]))
		}
		for n := range height {
			line := make([]string, len(row))
			for i := range row {
				if n < len(cells[i]) {
					line[i] = cells[i][n]
				}
			}
			lines = append(lines, line)
		}
	}
	widths := make(map[int]int)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var text strings.Builder
		for i, cell := range line {
			_, _ = fmt.Fprintf(&text, "  %s%s", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		say(out, "%s", strings.TrimRight(text.String(), " "))
	}
	say(out, "")
}

// wrap breaks a text into lines, at blanks where there are any.
func wrap(text string) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		for utf8.RuneCountInString(word) > widest {
			runes := []rune(word)
			if line != "" {
				lines, line = append(lines, line), ""
			}
			lines, word = append(lines, string(runes[:widest])), string(runes[widest:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > widest:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
