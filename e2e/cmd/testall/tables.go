package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// table is what a test has to show beside whether it passed.
type table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	// Failed is how many rows are not as they must be.
	Failed int `json:"failed"`
}

// printTables prints all tables that tests have left. One whose rows are not all as they must be has failed, and so has one that cannot be read: a test that
// writes a table must not pass while the table says otherwise.
func (t *tally) printTables(directory string, out io.Writer) {
	files, err := filepath.Glob(filepath.Join(directory, "*.json"))
	if err != nil {
		t.problem("the tables of the tests: %v", err)
	}
	for _, file := range files {
		var shown table
		content, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(content, &shown)
		}
		if err != nil || len(shown.Rows) == 0 {
			t.problem("the table %s cannot be read: %v", file, err)
			continue
		}
		_, _ = fmt.Fprintf(out, "\n%s (%d rows):\n", shown.Title, len(shown.Rows))
		columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{shown.Columns}, shown.Rows...) {
			_, _ = fmt.Fprintln(columns, "  "+strings.Join(row, "\t"))
		}
		_ = columns.Flush()
		if shown.Failed > 0 {
			t.problem("%s: %d of %d rows are not as they must be", shown.Title, shown.Failed, len(shown.Rows))
		}
	}
}
