package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestEvidenceChangesNoVerdict has random histories checked with the evidence and without it. Every other one has a list that was tampered with.
func TestEvidenceChangesNoVerdict(t *testing.T) {
	verdicts := make(map[bool]int)
	narrowed := 0
	for seed := range uint64(20000) {
		calls := randomTickets(rand.New(rand.NewPCG(seed, 1)))
		bare := bareOperations(calls)
		with := operations(calls)
		for i := range with {
			if with[i].Output == nil && with[i].Return != math.MaxInt64 {
				narrowed++
			}
		}
		narrowed += len(bare) - len(with)
		want := porcupine.CheckOperations(ticketModel(), bare)
		if got := porcupine.CheckOperations(ticketModel(), with); got != want {
			t.Errorf("seed %d: linearizable %t, and without the evidence %t", seed, got, want)
			for _, call := range calls {
				t.Log(call)
			}
			return
		}
		verdicts[want]++
	}
	if verdicts[true] < 500 || verdicts[false] < 300 || narrowed < 500 {
		t.Errorf("the histories say little: %v, %d calls narrowed", verdicts, narrowed)
	}
}

// TestManyUnknownTickets has more calls of unknown outcome than a checker could try at every moment.
func TestManyUnknownTickets(t *testing.T) {
	var calls []Call
	add := func(at int, outcome Outcome, input TicketInput, output any) {
		calls = append(calls, Call{
			Client: fmt.Sprint(len(calls)), Object: Tickets, Input: input, Output: output, Outcome: outcome, Began: time.Duration(at), Ended: time.Duration(at + 1),
		})
	}
	var notes []string
	for i := range 60 {
		note := fmt.Sprintf("t%02d", i)
		add(0, Unknown, TicketInput{Op: CreateTicket, Note: note}, nil)
		if i%2 == 0 {
			notes = append(notes, note)
			add(10*(i+1), Answered, TicketInput{Op: ListTickets}, TicketOutput{Notes: notes})
		}
		notes = notes[:len(notes):len(notes)]
	}
	if findings := Check(calls, nil, time.Minute, ""); len(findings) > 0 {
		t.Error(findings)
	}
}

// bareOperations are calls without what is known of their tickets.
func bareOperations(calls []Call) (operations []porcupine.Operation) {
	for i, call := range calls {
		operation := porcupine.Operation{ClientId: i, Input: call.Input, Call: int64(call.Began), Return: int64(call.Ended), Output: call.Output}
		if call.Outcome == Unknown {
			operation.Output, operation.Return = nil, math.MaxInt64
		}
		operations = append(operations, operation)
	}
	return operations
}

// randomTickets makes calls that overlap and carries each out at one moment of its own. Some are given up: they have their effect during the call, later, or never.
func randomTickets(random *rand.Rand) (calls []Call) {
	type effect struct {
		call int
		at   int
	}
	var effects []effect
	count := 6 + random.IntN(6)
	for i := range count {
		note := fmt.Sprint(random.IntN(2))
		input := TicketInput{Op: TicketOp(random.IntN(3)), Note: note}
		if input.Op == CreateTicket {
			// Each note is created once.
			for _, call := range calls {
				if other := call.Input.(TicketInput); other.Op == CreateTicket && other.Note == note {
					input.Op = ListTickets
				}
			}
		}
		if input.Op == ListTickets {
			input.Note = ""
		}
		began := random.IntN(25)
		call := Call{Client: fmt.Sprint(i), Object: Tickets, Input: input, Outcome: Answered, Began: time.Duration(began), Ended: time.Duration(began + 1 + random.IntN(20))}
		at := began + random.IntN(int(call.Ended)-began)
		if input.Op != ListTickets && random.IntN(2) == 0 {
			call.Outcome = Unknown
			at = began + random.IntN(40)
		}
		calls = append(calls, call)
		effects = append(effects, effect{i, at})
	}
	state := ticketSet("")
	for moment := range 120 {
		for _, effect := range effects {
			call := &calls[effect.call]
			if effect.at != moment || (call.Outcome == Unknown && random.IntN(4) == 0) {
				continue
			}
			input := call.Input.(TicketInput)
			after, refusal, _ := input.apply(state)
			state = after
			if call.Outcome == Answered {
				output := TicketOutput{Refusal: refusal}
				if input.Op == ListTickets && state != "" {
					output.Notes = state.notes()
				}
				call.Output = output
			}
		}
	}
	if random.IntN(2) == 0 {
		for i := range calls {
			output, _ := calls[i].Output.(TicketOutput)
			if calls[i].Input.(TicketInput).Op == ListTickets && len(output.Notes) > 0 {
				output.Notes = output.Notes[1:]
				calls[i].Output = output
				break
			}
		}
	}
	return calls
}
