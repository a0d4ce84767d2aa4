package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile(`([a-z][a-z0-9/]*): (Test[A-Za-z0-9]+)`)
	namedRow  = regexp.MustCompile("`((?:keys|sockets|files|process|host|binary|network|kernel|identity|exhaust|outlive)\\.[a-z]+)`")
)

// The threat model claims nothing without a test: every test and every row of the table of hostile roles that it names is there.
func TestThreatModel(t *testing.T) {
	workspace, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(workspace, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	text, rows := read("docs/explanation/threat-model.md"), read("docs/reference/hostile-roles.md")
	tests := namedTest.FindAllStringSubmatch(text, -1)
	if len(tests) < 5 {
		t.Errorf("%d tests are named", len(tests))
	}
	for _, test := range tests {
		files, err := filepath.Glob(filepath.Join(workspace, test[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(content), "func "+test[2]+"(")
		}
		if !found {
			t.Errorf("%s has no test %s", test[1], test[2])
		}
	}
	named := namedRow.FindAllStringSubmatch(text, -1)
	if len(named) < 40 {
		t.Errorf("%d rows are named", len(named))
	}
	for _, row := range named {
		if !strings.Contains(rows, "| `"+row[1]+"` |") {
			t.Errorf("the table of hostile roles has no row %s", row[1])
		}
	}
}
