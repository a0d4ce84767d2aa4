package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeEvents writes the events of a tier as go test does. In a test they are shortened to "action|package|test|output".
func writeEvents(t *testing.T, root, tier string, lines ...string) {
	t.Helper()
	var text strings.Builder
	for _, line := range lines {
		fields := strings.SplitN(line, "|", 4)
		fmt.Fprintf(&text, "{\"Action\":%q,\"Package\":%q,\"Test\":%q,\"Output\":%q}\n", fields[0], fields[1], fields[2], fields[3])
	}
	writeFile(t, filepath.Join(root, "var", "test", tier+".json"), text.String())
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// flaky are the events of a package in which one test fails and then passes alone.
func flaky(pkg, test, output string) []string {
	return []string{"start|" + pkg + "||", "run|" + pkg + "|" + test + "|", "run|" + pkg + "|" + test + "/sub|", "output|" + pkg + "|" + test + "|    " + output + "\n",
		"fail|" + pkg + "|" + test + "/sub|", "fail|" + pkg + "|" + test + "|", "output|" + pkg + "||isolate: load average: 7.5 3 2\n", "fail|" + pkg + "||",
		"start|" + pkg + "||", "run|" + pkg + "|" + test + "|", "run|" + pkg + "|" + test + "/sub|", "pass|" + pkg + "|" + test + "/sub|", "pass|" + pkg + "|" + test + "|", "pass|" + pkg + "||"}
}

func TestJudge(t *testing.T) {
	var long []string
	for i := range 100 {
		long = append(long, fmt.Sprintf("output|p|TestA|line %d\n", i))
	}
	three := append(append(flaky("p", "TestA", "late"), flaky("p", "TestB", "late")...), flaky("p", "TestC", "late")...)
	for _, c := range []struct {
		name   string
		events []string
		known  string
		last   string
		shows  []string
		hides  []string
	}{
		{
			name:   "passes",
			events: []string{"start|p||", "run|p|TestA|", "output|p|TestA|=== RUN TestA\n", "run|p|TestA/sub|", "pass|p|TestA/sub|", "pass|p|TestA|", "pass|p||"},
			last:   "2 passed, 0 failed, 0 skipped, 0 flaky",
		},
		{
			name: "a failed test shows the end of what it wrote",
			events: append(append([]string{"start|p||", "run|p|TestA|"}, long...), "fail|p|TestA|", "run|p|TestB|", "output|p|TestB|chatter\n", "pass|p|TestB|",
				"output|p||FAIL\n", "fail|p||"),
			last:  "1 passed, 1 failed, 0 skipped, 0 flaky",
			shows: []string{"p TestA\n", "line 60\n", "line 99\n"},
			hides: []string{"chatter", "line 59\n"},
		},
		{
			name:   "a skip with a reason is listed",
			events: []string{"start|p||", "run|p|TestA|", "output|p|TestA|=== RUN   TestA\n", "output|p|TestA|    a_test.go:1: needs root\n", "output|p|TestA|--- SKIP: TestA\n", "skip|p|TestA|", "run|p|TestB|", "pass|p|TestB|", "pass|p||"},
			last:   "1 passed, 0 failed, 1 skipped, 0 flaky",
			shows:  []string{"p TestA: a_test.go:1: needs root\n"},
		},
		{
			name:   "a skip without one is a failure",
			events: []string{"start|p||", "run|p|TestA|", "output|p|TestA|--- SKIP: TestA (0.00s)\n", "skip|p|TestA|", "run|p|TestB|", "pass|p|TestB|", "pass|p||"},
			last:   "1 passed, 1 failed, 1 skipped, 0 flaky",
			shows:  []string{"p TestA was skipped without a reason"},
		},
		{
			name:   "a package that fails after its tests, and passes when an empty pattern is repeated",
			events: []string{"start|p||", "run|p|TestA|", "pass|p|TestA|", "output|p||goleak: found\n", "fail|p||", "start|p||", "pass|p||"},
			last:   "1 passed, 1 failed, 0 skipped, 0 flaky",
			shows:  []string{"goleak: found", "p failed without a failed test"},
		},
		{
			name:   "a package and a test that never end",
			events: []string{"start|p||", "run|p|TestA|", "output|p|TestA|stuck\n"},
			last:   "0 passed, 2 failed, 0 skipped, 0 flaky",
			shows:  []string{"p did not end", "p TestA did not end:\n    stuck"},
		},
		{
			name:   "a package without tests",
			events: []string{"start|p||", "skip|p||"},
			last:   "0 passed, 1 failed, 0 skipped, 0 flaky",
			shows:  []string{"p: no test ran"},
		},
		{
			name:   "a flaky test",
			events: flaky("p", "TestA", "too late"),
			last:   "2 passed, 0 failed, 0 skipped, 1 flaky",
			shows:  []string{"p TestA (seed 7, load average 7.5 3 2)\n", "too late"},
		},
		{
			name:   "a flaky test that is known",
			events: flaky("p", "TestA", "too late"),
			known:  "| `TestA` | a slow disk |",
			last:   "2 passed, 1 failed, 0 skipped, 1 flaky",
			shows:  []string{"docs/flaky.md lists it already"},
		},
		{
			name:   "a flaky test with a data race",
			events: flaky("p", "TestA", "WARNING: DATA RACE"),
			last:   "2 passed, 1 failed, 0 skipped, 1 flaky",
			shows:  []string{"a repetition does not excuse"},
		},
		{
			name:   "a flaky test that shows a panic",
			events: flaky("p", "TestA", "exited with status 2: panic: index out of range"),
			last:   "2 passed, 1 failed, 0 skipped, 1 flaky",
			shows:  []string{"a repetition does not excuse"},
		},
		{
			name:   "a flaky test that shows the panic of etcd on a full disk",
			events: flaky("p", "TestA", "exited with status 2: panic: failed to commit tx: write member/snap/db: no space left on device"),
			last:   "2 passed, 0 failed, 0 skipped, 1 flaky",
		},
		{
			name:   "three flaky tests",
			events: three,
			last:   "6 passed, 1 failed, 0 skipped, 3 flaky",
		},
		{
			name: "a test that fails twice",
			events: []string{"start|p||", "run|p|TestA|", "fail|p|TestA|", "fail|p||", "start|p||", "run|p|TestA|", "output|p|TestA|again\n", "fail|p|TestA|",
				"fail|p||"},
			last:  "0 passed, 1 failed, 0 skipped, 0 flaky",
			shows: []string{"again"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			writeEvents(t, root, "system", c.events...)
			writeFile(t, filepath.Join(root, "docs", "flaky.md"), c.known)
			var out strings.Builder
			ok := judge(root, []string{"system"}, []string{"p"}, "7", &out)
			if want := strings.Contains(c.last, " 0 failed"); ok != want || !strings.HasSuffix(out.String(), c.last+"\n") {
				t.Errorf("well is %v, and the last line is not %q:\n%s", ok, c.last, out.String())
			}
			for _, text := range c.shows {
				if !strings.Contains(out.String(), text) {
					t.Errorf("%q is not shown:\n%s", text, out.String())
				}
			}
			for _, text := range c.hides {
				if strings.Contains(out.String(), text) {
					t.Errorf("%q is shown:\n%s", text, out.String())
				}
			}
		})
	}
}

func TestGotestsumFails(t *testing.T) {
	root := t.TempDir()
	writeEvents(t, root, "unit", "start|p||", "run|p|TestA|", "pass|p|TestA|", "pass|p||")
	writeFile(t, filepath.Join(root, "var/test/unit.failed"), "")
	var out strings.Builder
	if judge(root, []string{"unit"}, nil, "1", &out) || !strings.Contains(out.String(), "gotestsum failed in the tier unit") {
		t.Error(out.String())
	}
	out.Reset()
	if judge(root, []string{"unit", "system"}, nil, "1", &out) || !strings.Contains(out.String(), "system.json: no such file") {
		t.Error(out.String())
	}
}
