package page

import (
	"fmt"
	"strings"
)

// Expectation is what comments say of the command or the code block that comes next.
type Expectation struct {
	// Skip is why the code block is not run.
	Skip string
	// Refused is what the command says when it is refused.
	Refused string
	// Shows is the machine, and the command that comes to show the code block.
	Shows string
	// Stays is what the command says that goes on in the foreground of a terminal of its own, until the page ends.
	Stays string
	// Repeat says that the command is given again until it is not refused any more, and says what the page shows.
	Repeat bool
	// Until is a text that it then also says, with the very numbers; empty: none.
	Until string
}

// Take takes the next comment, unless it is of another kind.
func (e *Expectation) Take(comment string) (taken bool, err error) {
	verb, rest := cut(comment)
	var said *string
	switch verb {
	case "skip":
		said = &e.Skip
	case "refused":
		said = &e.Refused
	case "shows":
		said = &e.Shows
	case "stays":
		said = &e.Stays
	case "repeat":
	default:
		return false, nil
	}
	if *e != (Expectation{}) {
		return false, fmt.Errorf("two comments for one command")
	}
	if said == nil {
		e.Repeat, e.Until = true, rest
		return true, nil
	}
	if *said = rest; rest == "" {
		return false, fmt.Errorf("%q says nothing", verb)
	}
	return true, nil
}

// cut is the verb of a comment, and the rest of it.
func cut(comment string) (verb, rest string) {
	verb, rest, _ = strings.Cut(comment, " ")
	return verb, rest
}
