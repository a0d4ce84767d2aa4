package devcluster

import (
	"fmt"
	"strings"
	"testing"
)

// TestFailure checks that the reason of a failure is in the few lines that a failed test says of its cluster, and that no log pushes it out.
func TestFailure(t *testing.T) {
	status := Status{Roles: []Role{
		{Role: "consensus", State: "Ready"},
		{Role: "curator", State: "Backoff", Reason: "the port is taken", Restarts: 3, LastFailure: &Failure{Cause: "exit code 1", Lines: []string{"first", "bind: address in use"}}},
	}}
	status.Node.ID, status.Membership.State, status.Membership.Reason = "reeve-1", "Split", "no curator answers"
	status.Storage.Kind, status.Storage.State, status.Storage.Problem = "fscrypt", "Locked", "no key"
	long := func(name string) failedLog {
		var text strings.Builder
		for n := range 1000 {
			fmt.Fprintf(&text, "%s line %d %s\n", name, n, strings.Repeat("x", 1000))
		}
		return failedLog{name, text.String()}
	}
	logs := []failedLog{long("reeved"), long("consensus"), long("curator")}
	said := failure([]failedNode{{directory: "/d", status: &status, logs: logs}, {directory: "/d/nodes/2", silence: "nobody\nlistens", logs: logs[:1]}})
	lines := strings.Split(said, "\n")
	if len(lines) > shownLines {
		t.Errorf("%d lines, want %d at most", len(lines), shownLines)
	}
	for n, want := range []string{
		"--- the nodes, when the test had failed",
		"reeve-1 in /d: Split (no curator answers); volume fscrypt Locked: no key",
		"consensus Ready, restarts 0",
		"curator Backoff (the port is taken), restarts 3; it last failed: exit code 1: bind: address in use",
		"/d/nodes/2 does not answer: nobody listens",
	} {
		if got := lines[len(lines)-5+n]; got != want {
			t.Errorf("line %d from the end is %q, want %q", 5-n, got, want)
		}
	}
	for _, log := range []string{"reeved", "curator"} {
		if !strings.Contains(said, "\n"+log+" line 999 ") {
			t.Errorf("the end of the log of %s is not shown:\n%s", log, said)
		}
	}
	for _, line := range lines {
		if len(line) > shownWidth+len("…") {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	// A role that is Ready has only what the others leave.
	quiet := failure([]failedNode{{directory: "/d", status: &status, logs: []failedLog{{"reeved", "started\n"}, long("consensus"), {"curator", "gone\n"}}}})
	if n := strings.Count(quiet, "\nconsensus line "); n != otherLogLines {
		t.Errorf("%d lines of a role that is Ready, want %d:\n%s", n, otherLogLines, quiet)
	}
}
