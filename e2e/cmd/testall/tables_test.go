package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	for _, c := range []struct {
		name, document string
		failed         int
		shows          []string
	}{
		{"all well", `{"title":"Things","columns":["thing","state"],"rows":[["a","held"],["b","held"]]}`, 0, []string{"Things (2 rows):", "a      held"}},
		{"one is not", `{"title":"Things","columns":["thing","state"],"rows":[["a","held"],["b","ESCAPED"]],"failed":1}`, 1, []string{"b      ESCAPED"}},
		{"unreadable", `{"title":`, 1, nil},
		{"empty", `{"title":"Things","columns":["thing"],"rows":[]}`, 1, nil},
		{"long", `{"title":"Things","columns":["thing","state"],"rows":[["` + strings.Repeat("word ", 12) + `","` + strings.Repeat("x", 50) + `"]]}`, 0,
			[]string{strings.Repeat("x", widest) + "\n", strings.Repeat("x", 50-widest) + "\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			results := t.TempDir()
			if err := os.Mkdir(filepath.Join(results, "tables"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(results, "tables", "x.json"), []byte(c.document), 0o644); err != nil {
				t.Fatal(err)
			}
			var total tally
			var out strings.Builder
			printTables(results, &total, &out)
			if total.failed != c.failed {
				t.Errorf("%d failed, want %d", total.failed, c.failed)
			}
			for _, text := range c.shows {
				if !strings.Contains(out.String(), text) {
					t.Errorf("%q is not shown:\n%s", text, out.String())
				}
			}
			if err := forgetTables(results); err != nil {
				t.Error(err)
			}
			out.Reset()
			if printTables(results, &total, &out); out.Len() > 0 {
				t.Errorf("a table of an earlier run is printed:\n%s", out.String())
			}
		})
	}
}
