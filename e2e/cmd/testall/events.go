package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	ImportPath  string
	FailedBuild string
}

// reader makes a report of the events of one module.
type reader struct {
	total *tally
	out   io.Writer
	// ran counts the tests that ran to their end.
	ran      int
	packages map[string]*packageRun
	// builds is what the compiler said, by the package that it could not build.
	builds map[string]*strings.Builder
}

// packageRun is a package whose tests run.
type packageRun struct {
	output  strings.Builder
	tests   map[string]*testRun
	count   int
	failed  []string
	skipped int
}

// testRun is a test that runs.
type testRun struct {
	output strings.Builder
}

func newReader(total *tally, out io.Writer) *reader {
	return &reader{total: total, out: out, packages: make(map[string]*packageRun), builds: make(map[string]*strings.Builder)}
}

// read reads events until they end.
func (r *reader) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if jsonErr := json.Unmarshal(line, &e); jsonErr != nil {
				// Something that go itself says before it begins.
				say(r.out, "%s", strings.TrimRight(string(line), "\n"))
			} else {
				r.see(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) see(e event) {
	if e.Action == "build-output" {
		if r.builds[e.ImportPath] == nil {
			r.builds[e.ImportPath] = &strings.Builder{}
		}
		r.builds[e.ImportPath].WriteString(e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &packageRun{tests: make(map[string]*testRun)}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		r.seePackage(p, e)
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &testRun{}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass":
		r.ran++
		p.count++
		r.total.passed++
	case "fail":
		r.ran++
		p.count++
		p.failed = append(p.failed, e.Test)
		r.total.fail(e.Package+" "+e.Test, t.output.String())
	case "skip":
		p.skipped++
		r.total.skip(e.Package+" "+e.Test, reason(t.output.String()))
	}
	if e.Action == "pass" || e.Action == "skip" {
		// Long runs are not to be kept in memory.
		delete(p.tests, e.Test)
	}
}

func (r *reader) seePackage(p *packageRun, e event) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case "pass":
		say(r.out, "ok     %s  %.1fs  %s", e.Package, e.Elapsed, p.counts())
	case "skip":
		say(r.out, "-      %s  no tests", e.Package)
	case "fail":
		say(r.out, "FAIL   %s  %.1fs  %s", e.Package, e.Elapsed, p.counts())
		r.explain(p, e)
	}
	if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
		delete(r.packages, e.Package)
	}
}

func (p *packageRun) counts() string {
	text := fmt.Sprintf("%d tests", p.count)
	if p.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", p.skipped)
	}
	return text
}

// explain prints why a package failed: what its failed tests wrote, or, if no test failed, what was written outside of tests.
func (r *reader) explain(p *packageRun, e event) {
	slices.Sort(p.failed)
	for _, name := range p.failed {
		indent(r.out, p.tests[name].output.String())
	}
	if len(p.failed) > 0 && !strings.Contains(p.output.String(), "panic:") {
		return
	}
	if e.FailedBuild != "" && r.builds[e.FailedBuild] != nil {
		indent(r.out, r.builds[e.FailedBuild].String())
	}
	indent(r.out, p.output.String())
	if len(p.failed) == 0 {
		// A test that was running when the process ended says something too.
		for name, t := range p.tests {
			say(r.out, "       (%s had not ended)", name)
			indent(r.out, t.output.String())
		}
		r.total.problem("%s: the package failed without a failed test", e.Package)
	}
}

// abandoned reports the packages that never ended.
func (r *reader) abandoned() {
	for name, p := range r.packages {
		indent(r.out, p.output.String())
		r.total.problem("%s: its tests did not end", name)
	}
}

func indent(out io.Writer, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if frame(line) {
			continue
		}
		say(out, "       %s", line)
	}
}

// frame says whether a line only tells that a test begins, waits or goes on.
func frame(line string) bool {
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// reason is what a skipped test wrote: why it was skipped.
func reason(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !frame(line) && !strings.HasPrefix(line, "--- SKIP") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}
