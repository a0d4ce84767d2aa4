package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// events returns the report of events as go test writes them, shortened to "action|package|test|output".
func events(t *testing.T, lines ...string) string {
	t.Helper()
	var text strings.Builder
	for _, line := range lines {
		fields := strings.SplitN(line, "|", 4)
		fmt.Fprintf(&text, "{\"Action\":%q,\"Package\":%q,\"Test\":%q,\"Output\":%q}\n", fields[0], fields[1], fields[2], fields[3])
	}
	var total tally
	var out strings.Builder
	r := newReader(&total, &out)
	if err := r.read(strings.NewReader(text.String())); err != nil {
		t.Fatal(err)
	}
	r.abandoned()
	total.print(&out)
	return out.String()
}

func TestCounts(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		last   string
		shows  []string
		hides  []string
	}{
		{
			name:   "passes",
			events: []string{"run|p|TestA|", "output|p|TestA|=== RUN TestA\n", "pass|p|TestA|", "pass|p|TestA/sub|", "pass|p||"},
			last:   "2 passed, 0 failed, 0 skipped",
			shows:  []string{"ok     p "},
			hides:  []string{"=== RUN"},
		},
		{
			name: "a failed test shows what it wrote, and a passed one does not",
			events: []string{"output|p|TestA|    a_test.go:1: broken\n", "output|p|TestB|chatter\n", "fail|p|TestA|", "pass|p|TestB|",
				"output|p||FAIL\n", "fail|p||"},
			last:  "1 passed, 1 failed, 0 skipped",
			shows: []string{"FAIL   p ", "a_test.go:1: broken"},
			hides: []string{"chatter"},
		},
		{
			name:   "a skip with a reason is listed",
			events: []string{"output|p|TestA|=== RUN   TestA\n", "output|p|TestA|    a_test.go:1: needs root\n", "output|p|TestA|--- SKIP: TestA\n", "skip|p|TestA|", "pass|p||"},
			last:   "0 passed, 0 failed, 1 skipped",
			shows:  []string{"Skipped:\n  p TestA: a_test.go:1: needs root\n"},
		},
		{
			name:   "a skip without one is a failure",
			events: []string{"output|p|TestA|=== RUN   TestA\n", "output|p|TestA|--- SKIP: TestA (0.00s)\n", "skip|p|TestA|", "pass|p||"},
			last:   "0 passed, 1 failed, 0 skipped",
			shows:  []string{"p TestA: it was skipped without a reason"},
		},
		{
			name:   "a package that fails after its tests",
			events: []string{"pass|p|TestA|", "output|p||goleak: found unexpected goroutines\n", "fail|p||"},
			last:   "1 passed, 1 failed, 0 skipped",
			shows:  []string{"goleak: found", "p: the package failed without a failed test"},
		},
		{
			name:   "a package that never ends",
			events: []string{"pass|p|TestA|"},
			last:   "1 passed, 1 failed, 0 skipped",
			shows:  []string{"p: its tests did not end"},
		},
		{
			name:   "a package without tests",
			events: []string{"skip|p||"},
			last:   "0 passed, 0 failed, 0 skipped",
			shows:  []string{"-      p  no tests"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out := events(t, test.events...)
			if !strings.HasSuffix(out, test.last+"\n") {
				t.Errorf("the last line is not %q:\n%s", test.last, out)
			}
			for _, text := range test.shows {
				if !strings.Contains(out, text) {
					t.Errorf("%q is not shown:\n%s", text, out)
				}
			}
			for _, text := range test.hides {
				if strings.Contains(out, text) {
					t.Errorf("%q is shown:\n%s", text, out)
				}
			}
		})
	}
}

// TestWorkspace runs the runner on a workspace in which everything is that it has to find.
func TestWorkspace(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.work", "go 1.26.0\n\nuse (\n\t./e2e\n\t./good\n\t./empty\n\t./leans\n\t./uncompiled\n)\n")
	for _, name := range []string{"e2e", "good", "empty", "leans", "uncompiled"} {
		write(name+"/go.mod", "module example.org/"+name+"\n\ngo 1.26.0\n")
		write(name+"/x.go", "package x\n\nconst X = 1\n")
	}
	good := "package x\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n"
	write("good/x_test.go", good)
	write("e2e/x_test.go", "package x\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Error(\"the sky is green\") }\n")
	// It builds in the workspace alone: its go.mod does not require what it imports.
	write("leans/x.go", "package x\n\nimport good \"example.org/good\"\n\nconst X = good.X\n")
	write("leans/x_test.go", good)
	write("uncompiled/x_test.go", "package x\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { undefined() }\n")
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "")

	var out strings.Builder
	ok, err := testAll(context.Background(), root, false, &out)
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if ok || !strings.HasSuffix(text, "\n2 passed, 5 failed, 0 skipped\n") {
		t.Errorf("it is %v with:\n%s", ok, text)
	}
	for _, want := range []string{
		"empty: no test was run",
		"leans: with GOWORK=off",
		"the sky is green",
		"undefined: undefined",
		"uncompiled: the package failed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
	if strings.LastIndex(text, "test   e2e") < strings.LastIndex(text, "test   uncompiled") {
		t.Errorf("e2e is not the last:\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(root, "var/test/good.json")); err != nil {
		t.Error(err)
	}
}

func TestNoWorkspace(t *testing.T) {
	t.Setenv("GOWORK", "off")
	if _, err := testAll(context.Background(), t.TempDir(), false, &strings.Builder{}); err == nil {
		t.Error("no error without a go.work")
	}
}
