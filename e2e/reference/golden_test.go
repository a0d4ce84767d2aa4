package reference_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// generated is what the head of each page says of where it comes from.
const generated = "<!-- Generated from the comments in the sources: `make reference`. -->\n"

// workspace leads to the directory of go.work, docs to where the pages are.
const (
	workspace = "../.."
	docs      = workspace + "/docs/reference"
)

// golden holds that a page is what was made. UPDATE_GOLDEN=1 writes it anew.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join(docs, name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("docs/reference/%s is not that of the sources: run `make reference`", name)
	}
}

// line is a text in one line, for a cell of a table.
func line(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// escaped is a text of which Markdown takes nothing for HTML.
func escaped(text string) string { return strings.ReplaceAll(text, "<", `\<`) }

// only fails the test if a directory of pages has one that nobody makes any more.
func only(t *testing.T, pattern string, made map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(docs, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name, _ := filepath.Rel(docs, file); !made[name] {
			t.Errorf("docs/reference/%s is of nothing that there is: remove it", name)
		}
	}
}
