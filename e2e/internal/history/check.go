package history

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is what is found of a run.
type Verdict int

const (
	// Linearizable: and nothing is lost.
	Linearizable Verdict = iota
	// Invalid: there was too little traffic for a verdict. It is no success.
	Invalid
	// Undecided: the checker did not come to an end. It is no success either.
	Undecided
	// Violated: the answers are not those of one state, or what was acknowledged is lost.
	Violated
)

// String is the verdict for people.
func (v Verdict) String() string {
	return [...]string{"linearizable", "invalid", "undecided", "violated"}[v]
}

// Finding is what is wrong, and how bad that is.
type Finding struct {
	Verdict Verdict
	Problem string
}

// Worst is the verdict on a run with these findings: what is violated is so, however little traffic there was.
func Worst(findings []Finding) Verdict {
	worst := Linearizable
	for _, finding := range findings {
		worst = max(worst, finding.Verdict)
	}
	return worst
}

// Check checks every object of calls for linearizability, each for at most so long. nodes are the states of the nodes when the history began. Into the directory, if it is
// not empty, a picture is put of each object that is not linearizable; it is made for that.
func Check(calls []Call, nodes map[string]NodeState, within time.Duration, pictures string) (findings []Finding) {
	objects := make(map[string][]Call)
	for _, call := range calls {
		objects[call.Object] = append(objects[call.Object], call)
	}
	for object, calls := range objects {
		operations := operations(calls)
		if len(operations) == 0 {
			continue
		}
		model := ticketModel()
		if object != Tickets {
			initial, known := nodes[object]
			if !known {
				findings = append(findings, Finding{Invalid, "it is not known how node " + object + " was at the beginning"})
				continue
			}
			model = nodeModel(initial)
		}
		switch result, info := porcupine.CheckOperationsVerbose(model, operations, within); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			findings = append(findings, Finding{Undecided, fmt.Sprintf("%s: the checker found no verdict on %d calls within %s", object, len(operations), within)})
		default:
			problem := fmt.Sprintf("%s: %d calls are not linearizable", object, len(operations))
			if pictures != "" {
				file := filepath.Join(pictures, object+".html")
				err := os.MkdirAll(pictures, 0o755)
				if err == nil {
					err = porcupine.VisualizePath(model, info, file)
				}
				if err != nil {
					problem += "; the picture of it was not written: " + err.Error()
				} else {
					problem += "; see " + file
				}
			}
			findings = append(findings, Finding{Violated, problem})
		}
	}
	return findings
}

// operations is calls as the checker takes them: those that say something. One whose outcome is not known ends after all others; what only reads, and was not answered, says
// nothing, and what was refused and has an effect all the same is seen by others. For calls about tickets evidence narrows that.
func operations(calls []Call) (operations []porcupine.Operation) {
	var clients []string
	evidence := evidenceOf(calls)
	for _, call := range calls {
		operation := porcupine.Operation{Input: call.Input, Call: int64(call.Began), Return: int64(call.Ended), Output: call.Output}
		switch {
		case call.Outcome == Answered:
		case call.Outcome == Unknown && call.Write():
			operation.Output, operation.Return = nil, math.MaxInt64
			if input, ok := call.Input.(TicketInput); ok {
				from, to, seen := evidence.during(call, input)
				if !seen {
					continue
				}
				operation.Call, operation.Return = int64(min(from, to)), int64(to)
			}
		default:
			continue
		}
		if operation.ClientId = slices.Index(clients, call.Client); operation.ClientId < 0 {
			operation.ClientId = len(clients)
			clients = append(clients, call.Client)
		}
		operations = append(operations, operation)
	}
	return operations
}

// Phases are the moments of a run.
type Phases struct {
	// Struck is when the fault began, Healed when everything worked again.
	Struck, Healed time.Duration
}

// Least is how many acknowledged writes a run needs on each object: before its fault, between the fault and its healing, and after that.
type Least struct{ Before, Between, After int }

// Traffic says what there was too little of.
func Traffic(calls []Call, objects []string, phases Phases, least Least) (findings []Finding) {
	before, between, after := make(map[string]int), make(map[string]int), make(map[string]int)
	for _, call := range calls {
		switch {
		case !call.Acknowledged() || call.Began < 0:
		case call.Ended <= phases.Struck:
			before[call.Object]++
		case call.Began >= phases.Healed:
			after[call.Object]++
		case call.Began >= phases.Struck && call.Ended <= phases.Healed:
			between[call.Object]++
		}
	}
	tooLittle := func(when string, count, least int) {
		if count < least {
			findings = append(findings, Finding{Invalid, fmt.Sprintf("%d writes were acknowledged %s, and a run needs %d", count, when, least)})
		}
	}
	for _, object := range objects {
		tooLittle("on "+object+" before the fault", before[object], least.Before)
		tooLittle("on "+object+" during the fault", between[object], least.Between)
		tooLittle("on "+object+" after the fault", after[object], least.After)
	}
	return findings
}
