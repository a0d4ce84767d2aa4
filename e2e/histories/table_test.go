package histories_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/history"
)

// row is what became of all runs with one fault.
type row struct {
	runs, calls, acknowledged, unknown, refused, unsent int
	verdicts                                            [history.Violated + 1]int
	took                                                time.Duration
}

// tally counts what became of the runs of a test.
type tally struct {
	faults []string
	rows   map[string]*row
}

func newTally() *tally { return &tally{rows: make(map[string]*row)} }

func (t *tally) add(fault string, r result) {
	counted := t.rows[fault]
	if counted == nil {
		counted = new(row)
		t.faults, t.rows[fault] = append(t.faults, fault), counted
	}
	counted.runs++
	counted.took += r.took
	counted.unsent += r.unsent
	counted.verdicts[history.Worst(r.findings)]++
	for _, call := range r.calls {
		if call.Began < 0 {
			continue // one of an earlier run
		}
		counted.calls++
		switch {
		case call.Acknowledged():
			counted.acknowledged++
		case call.Outcome == history.Unknown:
			counted.unknown++
		case call.Outcome == history.Refused:
			counted.refused++
		}
	}
}

// show prints the table, and writes it to where `make test` looks for it.
func (t *tally) show(test *testing.T) {
	test.Helper()
	columns := []string{
		"fault", "runs", "calls", "writes acknowledged", "unknown", "refused", "unsent", "linearizable, nothing lost", "invalid", "undecided", "violated", "s a run",
	}
	rows, failed := [][]string{}, 0
	for _, fault := range t.faults {
		r := t.rows[fault]
		cells := []string{fault}
		for _, count := range []int{r.runs, r.calls, r.acknowledged, r.unknown, r.refused, r.unsent} {
			cells = append(cells, fmt.Sprint(count))
		}
		for _, count := range r.verdicts {
			cells = append(cells, fmt.Sprint(count))
		}
		rows = append(rows, append(cells, fmt.Sprintf("%.1f", r.took.Seconds()/float64(r.runs))))
		if r.verdicts[history.Linearizable] != r.runs {
			failed++
		}
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, cells := range append([][]string{columns}, rows...) {
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush()
	test.Logf("%s\n%s", test.Name(), text.String())

	directory := filepath.Join(shared.Programs.Workspace, "var", "test", "tables")
	document, err := json.MarshalIndent(map[string]any{"title": "Histories: " + test.Name(), "columns": columns, "rows": rows, "failed": failed}, "", "\t")
	if err == nil {
		err = os.MkdirAll(directory, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(directory, test.Name()+".json"), append(document, '\n'), 0o644)
	}
	if err != nil {
		test.Error(err)
	}
}
