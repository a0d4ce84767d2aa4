package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Table is what `make test` prints: it finds every one of them in var/test/tables.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	// Failed says how many rows are not as they must be.
	Failed int `json:"failed"`
}

// Users are those whose outcomes are columns.
var Users = []string{"root", "ordinary user"}

// NewTable makes the table of outcomes, by user and ID of the row.
func NewTable(outcomes map[string]map[string]*Outcome) Table {
	table := Table{Title: "Hostile roles", Columns: []string{"group", "attempt", "expected", "as root", "as an ordinary user", "judged"}}
	for _, row := range Rows() {
		cells := []string{row.Group, row.ID + ": " + row.Attempt, row.Expect}
		for _, user := range Users {
			outcome := outcomes[user][row.ID]
			cells = append(cells, outcome.Cell())
			if outcome.Escaped() {
				table.Failed++
			}
		}
		table.Rows = append(table.Rows, append(cells, row.Judged))
	}
	return table
}

// Write writes the table to where `make test` looks for it.
func (t Table) Write(workspace, name string) error {
	directory := filepath.Join(workspace, "var", "test", "tables")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	document, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, name+".json"), append(document, '\n'), 0o644)
}

// Reference is the documentation of the rows.
func Reference() string {
	var text strings.Builder
	text.WriteString(`# Hostile roles: what is tried, and what is to become of it

Made from the rows of the test e2e/hostile; do not edit. ` + "`make test`" + ` prints the same rows with what became of each as root, and ` + "`make soak`" + ` also as an ordinary
user. As root no row may escape. As an ordinary user a row is not asserted while the host cannot enforce a part of the sandbox that the row needs (the
node's status lists the missing parts); what happened is printed all the same.
`)
	group := ""
	for _, row := range Rows() {
		if row.Group != group {
			group = row.Group
			fmt.Fprintf(&text, "\n## %s\n\n| row | what is tried | what is to become of it | judged | needs |\n|---|---|---|---|---|\n", group)
		}
		needs := strings.Join(row.Needs, ", ")
		if needs == "" {
			needs = "nothing that may be missing"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", row.ID, row.Attempt, row.Expect, row.Judged, needs)
	}
	return text.String()
}
