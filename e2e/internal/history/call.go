package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reeveproject/reeve/sdk/event"
)

// Outcome is what a client knows of what became of its call.
type Outcome int

const (
	// Answered calls were answered: with what was asked for, or with a refusal that the model knows.
	Answered Outcome = iota
	// Refused calls had no effect, and what they were answered says nothing of the state.
	Refused
	// Unknown calls had their effect, or did not, or will have it.
	Unknown
	// Unsent calls never left the client: there was no connection.
	Unsent
)

// String is the outcome for people.
func (o Outcome) String() string {
	return [...]string{"answered", "refused", "unknown", "unsent"}[o]
}

// Tickets is the object of calls about tickets; all other calls are about a node, whose ID is their object.
const Tickets = "tickets"

// Call is one call on one object.
type Call struct {
	// Client made it, one call after another.
	Client string
	// Object is what it is about: a node's ID, or Tickets. Objects are linearizable each by itself.
	Object string
	// Input is a NodeInput or a TicketInput, and Output, of a call that was answered, a NodeOutput or a TicketOutput.
	Input, Output any
	Outcome       Outcome
	// Code is the gRPC code of the answer, for people.
	Code string
	// Began and Ended are since the beginning of the history. What began before it is negative.
	Began, Ended time.Duration
}

// Write says whether the call is one that may change something.
func (c Call) Write() bool {
	switch input := c.Input.(type) {
	case NodeInput:
		return input.Op != GetNode
	case TicketInput:
		return input.Op != ListTickets
	}
	return false
}

// Acknowledged says whether the call is a write that was answered to be done.
func (c Call) Acknowledged() bool {
	if c.Outcome != Answered || !c.Write() {
		return false
	}
	switch output := c.Output.(type) {
	case NodeOutput:
		return output.Refusal == None
	case TicketOutput:
		return output.Refusal == None
	}
	return false
}

// String is the call for people.
func (c Call) String() string {
	output := c.Outcome.String()
	if c.Outcome == Answered {
		output = fmt.Sprint(c.Output)
	} else if c.Code != "" {
		output += " (" + c.Code + ")"
	}
	return fmt.Sprintf("%s %s: %v -> %s [%s, %s]", c.Client, c.Object, c.Input, output, c.Began, c.Ended)
}

// History is what clients did. It is safe for concurrent use.
type History struct {
	began time.Time
	// acknowledged counts the writes that were, by their objects.
	acknowledged event.Value[map[string]int]

	mu    sync.Mutex
	calls []Call
}

// New returns a history that begins now. earlier are the calls before it whose outcome is not known: they may still have their effect.
func New(earlier []Call) *History {
	h := &History{began: time.Now()}
	for _, call := range earlier {
		call.Began = -1
		h.calls = append(h.calls, call)
	}
	h.acknowledged.Set(nil)
	return h
}

// Now is how long ago the history began.
func (h *History) Now() time.Duration { return time.Since(h.began) }

// Add adds calls that have ended.
func (h *History) Add(calls ...Call) {
	h.mu.Lock()
	h.calls = append(h.calls, calls...)
	h.mu.Unlock()
	for _, call := range calls {
		if call.Acknowledged() {
			h.acknowledged.Update(func(counts map[string]int) map[string]int {
				counts = maps.Clone(counts)
				if counts == nil {
					counts = make(map[string]int)
				}
				counts[call.Object]++
				return counts
			})
		}
	}
}

// AwaitWrites waits until so many more writes were acknowledged than when it is called, on each of some objects.
func (h *History) AwaitWrites(ctx context.Context, more int, objects ...string) error {
	begin, _ := h.acknowledged.Get()
	_, err := h.acknowledged.Wait(ctx, func(counts map[string]int) bool {
		return !slices.ContainsFunc(objects, func(object string) bool { return counts[object] < begin[object]+more })
	})
	if err == nil {
		return nil
	}
	var seen []string
	counts, _ := h.acknowledged.Get()
	for _, object := range objects {
		seen = append(seen, fmt.Sprintf("%d on %s", counts[object]-begin[object], object))
	}
	return fmt.Errorf("not %d writes were acknowledged on each object, but %s: %w", more, strings.Join(seen, ", "), err)
}

// Calls returns what there is, in the order in which the calls ended.
func (h *History) Calls() []Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Call(nil), h.calls...)
}

// At is the calls as they are for whoever reads what was kept at one moment between from and to: those that had ended before, and of those under way between, the writes, which may have had their effect or not.
func At(calls []Call, from, to time.Duration) (kept []Call) {
	for _, call := range calls {
		switch {
		case call.Ended < from:
		case call.Began > to || !call.Write() || call.Outcome != Answered && call.Outcome != Unknown:
			continue
		default:
			call.Outcome, call.Output = Unknown, nil
		}
		kept = append(kept, call)
	}
	return kept
}

// Pending are the writes among calls whose outcome is not known.
func Pending(calls []Call) (pending []Call) {
	for _, call := range calls {
		if call.Outcome == Unknown && call.Write() && call.Began >= 0 {
			pending = append(pending, call)
		}
	}
	return pending
}
