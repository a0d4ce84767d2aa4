// Package follow does what a page says, command by command, and compares what the commands say with what the page shows.
package follow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/page"
	"github.com/reeveproject/reeve/e2e/internal/terminal"
)

// patience is how long something may take that a page says comes by itself.
const patience = 2 * time.Minute

// Reader is somebody who follows a page. It belongs to one test.
type Reader struct {
	// Run runs a command.
	Run func(line string) terminal.Result
	// Start runs a command that goes on in a terminal of its own until the test ends, and returns once it has said a text; nil: the page has none.
	Start func(line, says string)
	// Names are what the page calls by a name of its own, and what it is here.
	Names map[string]func() string
	// Events are what happens between two commands, without the reader's doing.
	Events map[string]func()

	// Said is all that commands have said.
	Said strings.Builder
}

// Follow follows the page to its end, or fails the test.
func (r *Reader) Follow(t *testing.T, p *page.Page) {
	t.Helper()
	left := maps.Clone(r.Events)
	p.Follow(t, func(step page.Step) {
		t.Helper()
		where := fmt.Sprintf("%s:%d", p.Name, step.Line)
		switch {
		case step.Verb == "event" && left[step.Rest] != nil:
			left[step.Rest]()
			delete(left, step.Rest)
		case step.Verb != "":
			t.Fatalf("%s: the test does not know: %s", where, step.Text)
		case step.Kind == page.Output || step.Expected.Shows != "":
			t.Fatalf("%s: a code block of a terminal without a command", where)
		case step.Expected.Stays != "" && r.Start == nil:
			t.Fatalf("%s: the test has no other terminal", where)
		case step.Expected.Stays != "":
			r.Start(r.here(step.Text), step.Expected.Stays)
		default:
			r.command(t, where, step)
		}
	})
	for name := range left {
		t.Errorf("the test knows an event %q that %s has not", name, p.Name)
	}
}

// command runs a command of the page.
func (r *Reader) command(t *testing.T, where string, step page.Step) {
	t.Helper()
	begun := time.Now()
	line := r.here(step.Text)
	var shown []string
	for _, text := range step.Shown {
		shown = append(shown, r.here(text))
	}
	until := r.here(step.Expected.Until)
	look := func() (bool, string) {
		result := r.Run(line)
		if refused := result.Code != 0; refused != (step.Expected.Refused != "") || !strings.Contains(result.Output, step.Expected.Refused) {
			return false, result.String()
		}
		missing := page.Unlike(shown, result.Output)
		if missing == "" && !strings.Contains(result.Output, until) {
			missing = until
		}
		if missing == "" {
			r.Said.WriteString("$ " + line + "\n" + result.Output)
		}
		return missing == "", fmt.Sprintf("%q is not in what it says: %s", missing, result)
	}
	if step.Expected.Repeat {
		eventually.True(t, patience, where, look)
	} else if ok, seen := look(); !ok {
		t.Fatalf("%s: %s", where, seen)
	}
	t.Logf("%s: %s (%s)", where, line, time.Since(begun).Round(time.Millisecond))
}

// here is a text of the page with what its names are here.
func (r *Reader) here(text string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(r.Names)) {
		// What it is may have to be asked for, at a time when it can be.
		if strings.Contains(text, name) {
			pairs = append(pairs, name, r.Names[name]())
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
