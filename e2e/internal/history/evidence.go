package history

import (
	"math"
	"time"
)

// evidence says by when calls about tickets whose outcome is unknown took effect. Without it the checker tries each of them at every moment until the end, and its time doubles with
// each such call.
//
// It changes no verdict. Each ticket has a note of its own, so only one call creates it, and that call took effect before the answer of whoever saw the ticket. A ticket that nobody
// saw can as well be created at the very end, where nobody looks. RevokeTicket took effect after the lists that have the ticket, and before those that lack it and began after
// somebody had seen it. Where several calls revoke one ticket, nobody can tell which of them was seen.
type evidence struct {
	// created is when somebody was first answered who had seen the ticket.
	created map[string]time.Duration
	// revocations counts the calls that revoke a ticket, refused ones among them: those may have taken effect all the same.
	revocations map[string]int
	// revoked is when the first of these began.
	revoked map[string]time.Duration
	lists   []list
}

// list is a ListTickets that was answered.
type list struct {
	began, ended time.Duration
	tickets      ticketSet
}

// evidenceOf reads the calls of a history.
func evidenceOf(calls []Call) evidence {
	e := evidence{created: make(map[string]time.Duration), revocations: make(map[string]int), revoked: make(map[string]time.Duration)}
	for _, call := range calls {
		input, ok := call.Input.(TicketInput)
		if !ok {
			continue
		}
		if input.Op == RevokeTicket {
			e.revocations[input.Note]++
			sooner(e.revoked, input.Note, call.Began)
		}
		output, ok := call.Output.(TicketOutput)
		switch {
		case !ok || call.Outcome != Answered || output.Refusal != None:
		case input.Op == ListTickets:
			e.lists = append(e.lists, list{call.Began, call.Ended, setOf(output.Notes)})
			for _, note := range output.Notes {
				sooner(e.created, note, call.Ended)
			}
		default:
			sooner(e.created, input.Note, call.Ended)
		}
	}
	return e
}

// sooner notes a moment, unless an earlier one is known.
func sooner(moments map[string]time.Duration, note string, at time.Duration) {
	if known, ok := moments[note]; !ok || at < known {
		moments[note] = at
	}
}

// during returns between which moments a call of unknown outcome took effect. seen is false if nobody can have seen what it did.
func (e evidence) during(call Call, input TicketInput) (from, to time.Duration, seen bool) {
	created, ok := e.created[input.Note]
	if input.Op == CreateTicket {
		return e.createdAfter(call, input.Note), created, ok
	}
	if e.revocations[input.Note] > 1 {
		return call.Began, math.MaxInt64, true
	}
	from, to = call.Began, math.MaxInt64
	for _, list := range e.lists {
		if list.ended < call.Began {
			continue
		}
		if list.tickets.has(input.Note) {
			from = max(from, list.began)
			continue
		}
		seen = true
		if ok && created < list.began {
			to = min(to, list.ended)
		}
	}
	return from, to, seen
}

// createdAfter returns a moment before which a ticket was not there: a list that ended before anybody revoked the ticket lacks it.
func (e evidence) createdAfter(call Call, note string) time.Duration {
	from := call.Began
	for _, list := range e.lists {
		if first, revoked := e.revoked[note]; list.tickets.has(note) || revoked && first <= list.ended {
			continue
		}
		from = max(from, list.began)
	}
	return from
}
