package main

import (
	"fmt"
	"io"
	"strings"
)

// tally counts.
type tally struct {
	passed, failed int
	skips          []string
	problems       []string
	// found is what each failed test found wrong first: the report of a long run may be cut to its end.
	found []string
}

// foundLines is how many lines of what a test wrote are said again at the end.
const foundLines = 12

// fail counts a failed test.
func (t *tally) fail(test, output string) {
	t.failed++
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || frame(line) || strings.HasPrefix(line, "--- ") {
			continue
		}
		if lines = append(lines, line); len(lines) == foundLines {
			break
		}
	}
	t.found = append(t.found, strings.Join(append([]string{test}, lines...), "\n"))
}

// problem counts as failed what is not a test.
func (t *tally) problem(format string, arguments ...any) {
	t.failed++
	t.problems = append(t.problems, fmt.Sprintf(format, arguments...))
}

// skip counts a skipped test, as failed if it does not say why: nobody would ever know.
func (t *tally) skip(test, reason string) {
	if reason == "" {
		t.problem("%s: it was skipped without a reason", test)
		return
	}
	t.skips = append(t.skips, test+": "+reason)
}

// print prints what is to be said at the end, and returns whether everything is well.
func (t *tally) print(out io.Writer) bool {
	section(out, "Skipped:", t.skips)
	section(out, "Failed, beside tests:", t.problems)
	section(out, "Failed tests, and what each found first:", t.found)
	say(out, "%d passed, %d failed, %d skipped", t.passed, t.failed, len(t.skips))
	return t.failed == 0
}

func section(out io.Writer, title string, items []string) {
	if len(items) == 0 {
		return
	}
	say(out, "\n%s", title)
	for _, item := range items {
		say(out, "  %s", strings.ReplaceAll(item, "\n", "\n    "))
	}
	say(out, "")
}
