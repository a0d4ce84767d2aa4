package hostile

import (
	"fmt"
	"slices"
	"strings"
)

// Outcome is what became of a row for one user.
type Outcome struct {
	// Tries is how many things were tried, Refusals how the answers were, the most frequent first.
	Tries    int
	Refusals []string
	// Escapes are the tries that were not refused, and what was wrong afterwards, seen from outside.
	Escapes []string
	// Missing are the parts of the sandbox without which the row is not asserted.
	Missing []string
	// Note is what else is to be known.
	Note string
}

// Escaped reports whether the row is asserted and something got through.
func (o *Outcome) Escaped() bool { return o != nil && len(o.Escapes) > 0 && len(o.Missing) == 0 }

// escape notes something that got through.
func (o *Outcome) escape(format string, arguments ...any) {
	o.Escapes = append(o.Escapes, fmt.Sprintf(format, arguments...))
}

// answer counts an answer.
func (o *Outcome) answer(text string) {
	if !slices.Contains(o.Refusals, text) && len(o.Refusals) < 8 {
		o.Refusals = append(o.Refusals, text)
	}
}

// Cell is the outcome in the table.
func (o *Outcome) Cell() string {
	if o == nil {
		return "not run"
	}
	held := "held"
	if o.Tries > 0 {
		held = fmt.Sprintf("held: %d tries", o.Tries)
	}
	if len(o.Refusals) > 0 {
		held += " (" + strings.Join(o.Refusals[:min(3, len(o.Refusals))], ", ") + ")"
	}
	if o.Note != "" {
		held += "; " + o.Note
	}
	escapes := fmt.Sprintf("%d of %d got through: %s", len(o.Escapes), max(o.Tries, len(o.Escapes)), strings.Join(o.Escapes[:min(2, len(o.Escapes))], "; "))
	switch {
	case o.Escaped():
		return "ESCAPED: " + escapes
	case len(o.Missing) > 0 && len(o.Escapes) > 0:
		return "not asserted (no " + strings.Join(o.Missing, ", ") + "): " + escapes
	case len(o.Missing) > 0:
		return "not asserted (no " + strings.Join(o.Missing, ", ") + "): " + held
	}
	return held
}
