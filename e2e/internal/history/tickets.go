package history

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// TicketOp is what a call does with the tickets.
type TicketOp int

const (
	// ListTickets reads all of them.
	ListTickets TicketOp = iota
	// CreateTicket makes one.
	CreateTicket
	// RevokeTicket takes one back.
	RevokeTicket
)

// String is the operation for people.
func (op TicketOp) String() string {
	return [...]string{"ListTickets", "CreateTicket", "RevokeTicket"}[op]
}

// TicketInput is what a call asks about tickets. A ticket is known by its note, which is another one for each: its ID is drawn by the curator, and lost with the answer.
type TicketInput struct {
	Op   TicketOp
	Note string
}

// String is the input for people.
func (i TicketInput) String() string {
	if i.Op == ListTickets {
		return i.Op.String()
	}
	return fmt.Sprintf("%s(%s)", i.Op, i.Note)
}

// TicketOutput is what a call was answered about tickets.
type TicketOutput struct {
	Refusal Refusal
	// Notes is what a list has, sorted.
	Notes []string
}

// String is the output for people.
func (o TicketOutput) String() string {
	switch {
	case o.Refusal == Absent:
		return "absent"
	case o.Notes != nil:
		return strings.Join(o.Notes, " ")
	}
	return "done"
}

// ticketSet is all tickets as a value that can be compared: their notes, sorted, each with a line of its own.
type ticketSet string

func setOf(notes []string) ticketSet {
	if len(notes) == 0 {
		return ""
	}
	return ticketSet(strings.Join(notes, "\n") + "\n")
}

func (s ticketSet) notes() []string { return strings.Split(strings.TrimSuffix(string(s), "\n"), "\n") }

func (s ticketSet) has(note string) bool {
	return strings.HasPrefix(string(s), note+"\n") || strings.Contains(string(s), "\n"+note+"\n")
}

func (s ticketSet) with(note string) ticketSet {
	if s == "" {
		return setOf([]string{note})
	}
	notes := append(s.notes(), note)
	slices.Sort(notes)
	return setOf(notes)
}

func (s ticketSet) without(note string) ticketSet {
	return setOf(slices.DeleteFunc(s.notes(), func(other string) bool { return other == note }))
}

// apply is what becomes of the tickets. ok says that it can be so at all: no ticket is made twice.
func (i TicketInput) apply(before ticketSet) (after ticketSet, refusal Refusal, ok bool) {
	switch i.Op {
	case CreateTicket:
		if before.has(i.Note) {
			return before, None, false
		}
		return before.with(i.Note), None, true
	case RevokeTicket:
		if !before.has(i.Note) {
			return before, Absent, true
		}
		return before.without(i.Note), None, true
	}
	return before, None, true
}

var ticketSeed = maphash.MakeSeed()

// ticketModel is a cluster that had none of the tickets when the history began.
func ticketModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return ticketSet("") },
		Step: func(state, input, output any) (bool, any) {
			asked := input.(TicketInput)
			after, refusal, ok := asked.apply(state.(ticketSet))
			if output == nil || !ok {
				return ok, after
			}
			answer := output.(TicketOutput)
			if asked.Op == ListTickets && setOf(answer.Notes) != after {
				return false, after
			}
			return answer.Refusal == refusal, after
		},
		Hash:              func(state any) uint64 { return maphash.String(ticketSeed, string(state.(ticketSet))) },
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return strings.Join(state.(ticketSet).notes(), " ") },
	}
}
