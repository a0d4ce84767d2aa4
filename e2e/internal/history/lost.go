package history

import (
	"fmt"
	"slices"
)

// Final is what one curator answers when everything has healed and nobody writes any more.
type Final struct {
	// Curator is who answered.
	Curator string
	Nodes   map[string]NodeState
	// Notes are those of the tickets, sorted.
	Notes []string
}

// Lost says which acknowledged writes are not there in what a curator answers in the end. It is a check beside that of linearizability, and a simpler one: what it finds can
// be understood without a picture.
func Lost(calls []Call, finals []Final) (findings []Finding) {
	for _, final := range finals {
		for _, problem := range append(lostTickets(calls, final), lostOnNodes(calls, final)...) {
			findings = append(findings, Finding{Violated, final.Curator + ": " + problem})
		}
	}
	return findings
}

func lostTickets(calls []Call, final Final) (problems []string) {
	// What somebody tried to revoke may be gone.
	tried, revoked := make(map[string]bool), make(map[string]bool)
	for _, call := range calls {
		if input, ok := call.Input.(TicketInput); ok && input.Op == RevokeTicket && (call.Outcome == Answered || call.Outcome == Unknown) {
			tried[input.Note] = true
			revoked[input.Note] = revoked[input.Note] || call.Acknowledged()
		}
	}
	for _, call := range calls {
		input, ok := call.Input.(TicketInput)
		if !ok || !call.Acknowledged() {
			continue
		}
		there := slices.Contains(final.Notes, input.Note)
		switch {
		case input.Op == CreateTicket && !tried[input.Note] && !there:
			problems = append(problems, fmt.Sprintf("ticket %s was acknowledged, nobody revoked it, and it is not there", input.Note))
		case input.Op == RevokeTicket && there:
			problems = append(problems, fmt.Sprintf("ticket %s was revoked, and it is there", input.Note))
		}
	}
	return problems
}

// register is one of the values of a node.
type register struct {
	name string
	of   func(NodeState) string
	// wishes is the value that a write wants, if it is one of the register.
	wishes func(NodeInput) (value string, ok bool)
}

func registers() []register {
	var all []register
	for key := range Keys {
		all = append(all, register{
			name:   fmt.Sprintf("label %d", key),
			of:     func(state NodeState) string { return state.Labels[key] },
			wishes: func(input NodeInput) (string, bool) { return input.Value, input.Op == SetLabel && input.Key == key },
		})
	}
	return append(all, register{
		name: "the role",
		of:   func(state NodeState) string { return fmt.Sprint(state.Role) },
		wishes: func(input NodeInput) (string, bool) {
			switch input.Op {
			case AddRole:
				return fmt.Sprint(true), true
			case RemoveRole:
				return fmt.Sprint(false), true
			case SetRoles:
				return fmt.Sprint(input.Role), true
			}
			return "", false
		},
	})
}

func lostOnNodes(calls []Call, final Final) (problems []string) {
	for id, state := range final.Nodes {
		for _, register := range registers() {
			// The last acknowledged write stands, or one of which nobody knows.
			var last Call
			var possible []string
			for _, call := range calls {
				input, ok := call.Input.(NodeInput)
				if !ok || call.Object != id {
					continue
				}
				value, ok := register.wishes(input)
				switch {
				case !ok:
				case call.Outcome == Unknown:
					possible = append(possible, value)
				case call.Acknowledged() && (last.Output == nil || generation(last) <= generation(call)):
					last = call
				}
			}
			if last.Output == nil {
				continue
			}
			if found := register.of(state); found != register.of(last.Output.(NodeOutput).State) && !slices.Contains(possible, found) {
				problems = append(problems, fmt.Sprintf("%s of node %s is %q, and the last acknowledged write of it was %s", register.name, id, found, last))
			}
			if state.Generation < generation(last) {
				problems = append(problems, fmt.Sprintf("node %s has generation %d, older than what was acknowledged: %s", id, state.Generation, last))
			}
		}
	}
	return problems
}

func generation(call Call) uint64 { return call.Output.(NodeOutput).State.Generation }
