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
	} {
		t.Run(c.name, func(t *testing.T) {
			directory := t.TempDir()
			if err := os.WriteFile(filepath.Join(directory, "x.json"), []byte(c.document), 0o644); err != nil {
				t.Fatal(err)
			}
			var total tally
			var out strings.Builder
			total.printTables(directory, &out)
			if len(total.problems) != c.failed {
				t.Errorf("problems %q, want %d", total.problems, c.failed)
			}
			for _, text := range c.shows {
				if !strings.Contains(out.String(), text) {
					t.Errorf("%q is not shown:\n%s", text, out.String())
				}
			}
		})
	}
}
