package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	// mostFlaky is how many flaky tests a run may have.
	mostFlaky = 2
	// tailLines is how many lines of what a failed test wrote are said again at the end: the report of a long run may be cut to its end.
	tailLines = 40
)

// final is in the output of tests that a repetition does not excuse.
var final = regexp.MustCompile(`panic: |WARNING: DATA RACE|found unexpected goroutines|ESCAPED|acknowledged .*(lost|missing)|lost .*acknowledged`)

// event is a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// testRun is what became of a test; a repetition changes the outcome.
type testRun struct {
	pkg, name string
	outcome   string
	output    []string
	// failedOnce says that the test failed, firstFailure what it wrote when it failed for the first time.
	failedOnce   bool
	firstFailure []string
	// load is the machine's load average when the tests of the package ended for the first time after it failed.
	load string
}

func (r *testRun) String() string { return r.pkg + " " + r.name }

// isRoot says whether it is not a part of another test.
func (r *testRun) isRoot() bool { return !strings.Contains(r.name, "/") }

// tally counts what became of tests.
type tally struct {
	tests []*testRun
	// problems are failures that are no test's.
	problems []string
}

func (t *tally) problem(format string, arguments ...any) {
	t.problems = append(t.problems, fmt.Sprintf(format, arguments...))
}

func (t *tally) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return t.read(file)
}

// read reads the events of a tier.
func (t *tally) read(from io.Reader) error {
	tests := make(map[string]*testRun)
	// A package that runs has the number of its failed tests here, and what it wrote outside of tests.
	failed, output := make(map[string]int), make(map[string][]string)
	for decoder := json.NewDecoder(from); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if e.Test == "" {
			t.readPackage(e, failed, output)
			continue
		}
		r := tests[e.Package+" "+e.Test]
		if r == nil {
			r = &testRun{pkg: e.Package, name: e.Test}
			tests[r.String()] = r
			t.tests = append(t.tests, r)
		}
		switch e.Action {
		case "run":
			r.outcome, r.output = "", nil
		case "output":
			r.output = append(r.output, e.Output)
		case "pass", "skip":
			r.outcome = e.Action
		case "fail":
			r.outcome = e.Action
			failed[e.Package]++
			if !r.failedOnce {
				r.failedOnce, r.firstFailure = true, r.output
			}
		}
	}
	for name := range failed {
		t.problem("%s did not end", name)
	}
	for _, r := range tests {
		switch {
		case r.outcome == "":
			t.problem("%s did not end:\n%s", r, tail(r.output))
		case r.outcome == "skip" && reason(r.output) == "":
			t.problem("%s was skipped without a reason", r)
		case r.isFlaky() && slices.ContainsFunc(r.firstFailure, isFinal):
			t.problem("%s failed in a way that a repetition does not excuse:\n%s", r, tail(r.firstFailure))
		}
	}
	slices.Sort(t.problems)
	return nil
}

// readPackage reads an event of a package: it starts, writes something outside of tests, or ends.
func (t *tally) readPackage(e event, failed map[string]int, output map[string][]string) {
	switch e.Action {
	case "start":
		failed[e.Package], output[e.Package] = 0, nil
	case "output":
		output[e.Package] = append(output[e.Package], e.Output)
		if load, ok := strings.CutPrefix(e.Output, "isolate: load average: "); ok {
			t.setLoad(e.Package, strings.TrimSpace(load))
		}
	case "fail":
		if failed[e.Package] == 0 {
			t.problem("%s failed without a failed test:\n%s", e.Package, tail(output[e.Package]))
		}
		delete(failed, e.Package)
	case "pass", "skip":
		delete(failed, e.Package)
	}
}

// setLoad notes the load average for the failed tests of a package that have none yet.
func (t *tally) setLoad(pkg, load string) {
	for _, r := range t.tests {
		if r.pkg == pkg && r.failedOnce && r.load == "" {
			r.load = load
		}
	}
}

// checkModules looks for modules of which no test ran.
func (t *tally) checkModules(modules []string) {
	for _, module := range modules {
		if !slices.ContainsFunc(t.tests, func(r *testRun) bool { return r.outcome != "skip" && strings.HasPrefix(r.pkg+"/", module+"/") }) {
			t.problem("%s: no test ran", module)
		}
	}
}

// isFinal reports whether a repetition does not excuse a line of a test. etcd panics on a full disk, as the test of one expects.
func isFinal(line string) bool {
	return final.MatchString(line) && !strings.Contains(line, "no space left on device")
}

func (r *testRun) isFlaky() bool { return r.outcome == "pass" && r.failedOnce }

// with returns the tests of an outcome.
func (t *tally) with(outcome string) []*testRun {
	return slices.DeleteFunc(slices.Clone(t.tests), func(r *testRun) bool { return r.outcome != outcome })
}

// print prints what is to be said at the end, and returns whether everything is well. known is the text of docs/flaky.md.
func (t *tally) print(out io.Writer, known, seed string) bool {
	var flaky []*testRun
	for _, r := range t.tests {
		if r.isFlaky() && r.isRoot() {
			flaky = append(flaky, r)
			if strings.Contains(known, "`"+r.name+"`") {
				t.problem("%s is flaky, and docs/flaky.md lists it already: find the cause", r)
			}
		}
	}
	if len(flaky) > mostFlaky {
		t.problem("%d tests are flaky, and a run may have %d", len(flaky), mostFlaky)
	}
	skips := t.with("skip")
	section(out, "Skipped:", skips, func(r *testRun) string { return fmt.Sprintf("%s: %s", r, reason(r.output)) })
	section(out, "Flaky: each passed when it was repeated alone. Enter them in docs/flaky.md with the suspected cause:", flaky, func(r *testRun) string {
		return fmt.Sprintf("%s (seed %s, load average %s)\n%s", r, seed, cmp.Or(r.load, "unknown"), tail(r.firstFailure))
	})
	failed := t.with("fail")
	section(out, "Failed tests, and the end of what each wrote:", failed, func(r *testRun) string { return fmt.Sprintf("%s\n%s", r, tail(r.output)) })
	section(out, "Failed, beside tests:", t.problems, func(problem string) string { return problem })
	_, _ = fmt.Fprintf(out, "%d passed, %d failed, %d skipped, %d flaky\n", len(t.with("pass")), len(failed)+len(t.problems), len(skips), len(flaky))
	return len(failed)+len(t.problems) == 0
}

func section[T any](out io.Writer, title string, items []T, text func(T) string) {
	if len(items) == 0 {
		return
	}
	_, _ = fmt.Fprintf(out, "\n%s\n", title)
	for _, item := range items {
		_, _ = fmt.Fprintf(out, "  %s\n", strings.ReplaceAll(strings.TrimRight(text(item), "\n"), "\n", "\n    "))
	}
	_, _ = fmt.Fprintln(out)
}

// isFrame says whether a line only tells that a test begins, waits or goes on.
func isFrame(line string) bool { return strings.HasPrefix(line, "=== ") }

// tail is the end of an output.
func tail(output []string) string {
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(strings.Join(output, ""))), isFrame)
	return strings.Join(lines[max(0, len(lines)-tailLines):], "")
}

// reason is what a skipped test wrote: why it was skipped.
func reason(output []string) string {
	var lines []string
	for line := range strings.Lines(strings.Join(output, "")) {
		if line = strings.TrimSpace(line); line != "" && !isFrame(line) && !strings.HasPrefix(line, "--- SKIP") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}
