package hostile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReference checks that the documentation has the rows that there are.
func TestReference(t *testing.T) {
	path := filepath.Join(suite.programs.Workspace, "docs", "reference", "hostile-roles.md")
	if os.Getenv("HOSTILE_WRITE_DOCS") != "" {
		if err := os.WriteFile(path, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(content) != Reference() {
		t.Errorf("%s is not what the rows say: HOSTILE_WRITE_DOCS=1 go test -run TestReference ./e2e/hostile", path)
	}
}

// TestRows checks that every row says what it is to say, once.
func TestRows(t *testing.T) {
	seen := make(map[string]bool)
	for _, row := range Rows() {
		if row.ID == "" || row.Group == "" || row.Attempt == "" || row.Expect == "" || row.Judged == "" || row.Role == "" && row.Judged != byCluster {
			t.Errorf("incomplete: %+v", row)
		}
		if seen[row.ID] {
			t.Errorf("twice: %s", row.ID)
		}
		seen[row.ID] = true
	}
}

// TestCell checks what an outcome looks like, above all that one that got through is never shown as held.
func TestCell(t *testing.T) {
	for _, c := range []struct {
		outcome *Outcome
		escaped bool
		want    string
	}{
		{nil, false, "not run"},
		{&Outcome{Tries: 3, Refusals: []string{"EPERM"}}, false, "held: 3 tries (EPERM)"},
		{&Outcome{Tries: 3, Escapes: []string{"read x"}}, true, "ESCAPED: 1 of 3 got through: read x"},
		{&Outcome{Tries: 3, Escapes: []string{"read x"}, Missing: []string{ownUID}}, false, "not asserted (no own-uid): 1 of 3 got through: read x"},
		{&Outcome{Tries: 3, Missing: []string{ownUID}}, false, "not asserted (no own-uid): held: 3 tries"},
	} {
		if got := c.outcome.Cell(); got != c.want || c.outcome.Escaped() != c.escaped {
			t.Errorf("%+v: %q, %v; want %q", c.outcome, got, c.outcome.Escaped(), c.want)
		}
	}
}
