package history_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/history"
)

// nodeA is the node of the histories here.
const nodeA = "reeve-aa"

// script is a history that is written by hand. Times are in seconds.
type script struct{ calls []history.Call }

func (s *script) add(client, object string, began, ended int, outcome history.Outcome, input, output any) *script {
	s.calls = append(s.calls, history.Call{
		Client: client, Object: object, Input: input, Output: output, Outcome: outcome, Began: time.Duration(began) * time.Second, Ended: time.Duration(ended) * time.Second,
	})
	return s
}

// node is a call on the node that was answered with a state.
func (s *script) node(client string, began, ended int, input history.NodeInput, generation uint64, label string, role bool) *script {
	return s.add(client, nodeA, began, ended, history.Answered, input, history.NodeOutput{State: state(generation, label, role)})
}

func (s *script) refused(client string, began, ended int, input history.NodeInput, refusal history.Refusal) *script {
	return s.add(client, nodeA, began, ended, history.Answered, input, history.NodeOutput{Refusal: refusal})
}

func (s *script) unknown(client, object string, began, ended int, input any) *script {
	return s.add(client, object, began, ended, history.Unknown, input, nil)
}

func (s *script) tickets(client string, began, ended int, input history.TicketInput, output history.TicketOutput) *script {
	return s.add(client, history.Tickets, began, ended, history.Answered, input, output)
}

func state(generation uint64, label string, role bool) history.NodeState {
	return history.NodeState{Generation: generation, Labels: [history.Keys]string{label}, Role: role}
}

func set(value string) history.NodeInput {
	return history.NodeInput{Op: history.SetLabel, Value: value}
}

func create(note string) history.TicketInput {
	return history.TicketInput{Op: history.CreateTicket, Note: note}
}

func revoke(note string) history.TicketInput {
	return history.TicketInput{Op: history.RevokeTicket, Note: note}
}

func listed(notes ...string) history.TicketOutput { return history.TicketOutput{Notes: notes} }

var (
	get  = history.NodeInput{Op: history.GetNode}
	list = history.TicketInput{Op: history.ListTickets}
	done = history.TicketOutput{}
)

// TestCheck has histories judged that are right and such as must never be: if one of those passed, no run would say anything.
func TestCheck(t *testing.T) {
	swap := func(role bool, expected uint64) history.NodeInput {
		return history.NodeInput{Op: history.SetRoles, Role: role, Expected: expected}
	}
	add, remove := history.NodeInput{Op: history.AddRole}, history.NodeInput{Op: history.RemoveRole}
	for _, test := range []struct {
		name     string
		script   *script
		violated bool
	}{
		{"one after another", new(script).node("a", 1, 2, set("x"), 2, "x", true).node("b", 3, 4, get, 2, "x", true), false},
		{"a stale read", new(script).node("a", 1, 2, set("x"), 2, "x", true).node("b", 3, 4, get, 1, "", true), true},
		{"a read beside the write", new(script).node("a", 1, 4, set("x"), 2, "x", true).node("b", 2, 3, get, 1, "", true), false},
		{"a read that goes back", new(script).node("a", 1, 9, set("x"), 2, "x", true).node("b", 2, 3, get, 2, "x", true).node("c", 4, 5, get, 1, "", true), true},
		{"a lost update", new(script).node("a", 1, 4, set("x"), 2, "x", true).node("b", 1, 4, set("y"), 2, "y", true), true},
		{"a write made twice", new(script).node("a", 1, 2, set("x"), 3, "x", true), true},
		{"an acknowledged write undone", new(script).node("a", 1, 2, set("x"), 2, "x", true).node("b", 3, 4, set("y"), 3, "y", true).node("c", 5, 6, get, 2, "x", true), true},
		{"an unknown write that was made", new(script).unknown("a", nodeA, 1, 2, set("x")).node("b", 3, 4, get, 2, "x", true), false},
		{"an unknown write that was not", new(script).unknown("a", nodeA, 1, 2, set("x")).node("b", 3, 4, get, 1, "", true), false},
		{"an unknown write that was made late", new(script).unknown("a", nodeA, 1, 2, set("x")).node("b", 3, 4, get, 1, "", true).node("b", 5, 6, get, 2, "x", true), false},
		{"an unknown write that comes and goes", new(script).unknown("a", nodeA, 1, 2, set("x")).
			node("b", 3, 4, get, 2, "x", true).node("b", 5, 6, get, 1, "", true), true},
		{"an unknown write that was made twice", new(script).unknown("a", nodeA, 1, 2, set("x")).
			node("b", 3, 4, set("y"), 3, "y", true).node("b", 5, 6, get, 4, "x", true), true},
		{"an unknown write before it began", new(script).node("b", 1, 2, get, 2, "x", true).unknown("a", nodeA, 3, 4, set("x")), true},
		{"an unknown read says nothing", new(script).unknown("a", nodeA, 1, 2, get).node("b", 3, 4, get, 1, "", true), false},
		{"a refused write that was made", new(script).add("a", nodeA, 1, 2, history.Refused, set("x"), nil).node("b", 3, 4, get, 2, "x", true), true},
		{"an unsent write that was made", new(script).add("a", nodeA, 1, 2, history.Unsent, set("x"), nil).node("b", 3, 4, get, 2, "x", true), true},
		{"a role", new(script).node("a", 1, 2, remove, 2, "", false).refused("a", 3, 4, remove, history.Absent).
			node("a", 5, 6, add, 3, "", true).node("a", 7, 8, add, 3, "", true), false},
		{"a role that is there is absent", new(script).refused("a", 1, 2, remove, history.Absent), true},
		{"compare and swap", new(script).node("a", 1, 2, swap(false, 1), 2, "", false).refused("b", 3, 4, swap(true, 1), history.Changed), false},
		{"both swap", new(script).node("a", 1, 4, swap(false, 1), 2, "", false).node("b", 1, 4, swap(true, 1), 2, "", true), true},
		{"a swap refused without a reason", new(script).refused("a", 1, 2, swap(false, 1), history.Changed), true},
		{"a swap on what had changed", new(script).node("a", 1, 2, set("x"), 2, "x", true).node("b", 3, 4, swap(false, 1), 3, "x", false), true},

		{"tickets", new(script).tickets("a", 1, 2, create("1"), done).tickets("a", 3, 4, create("2"), done).tickets("b", 5, 6, list, listed("1", "2")).
			tickets("a", 7, 8, revoke("1"), done).tickets("b", 9, 10, list, listed("2")), false},
		{"a lost ticket", new(script).tickets("a", 1, 2, create("1"), done).tickets("b", 3, 4, list, listed()), true},
		{"a ticket of nobody", new(script).tickets("b", 3, 4, list, listed("1")), true},
		{"a revoked ticket comes back", new(script).tickets("a", 1, 2, create("1"), done).tickets("a", 3, 4, revoke("1"), done).tickets("b", 5, 6, list, listed("1")), true},
		{"revoked by two", new(script).tickets("a", 1, 2, create("1"), done).tickets("a", 3, 6, revoke("1"), done).tickets("b", 3, 6, revoke("1"), done), true},
		{"revoked again", new(script).tickets("a", 1, 2, create("1"), done).unknown("a", history.Tickets, 3, 4, revoke("1")).
			tickets("b", 5, 6, revoke("1"), history.TicketOutput{Refusal: history.Absent}), false},
		{"lists that differ on what was first", new(script).tickets("a", 1, 9, create("1"), done).tickets("b", 1, 9, create("2"), done).
			tickets("c", 2, 3, list, listed("1")).tickets("d", 4, 5, list, listed("2")), true},
		{"an unknown ticket", new(script).unknown("a", history.Tickets, 1, 2, create("1")).tickets("b", 3, 4, list, listed()).tickets("b", 5, 6, list, listed("1")), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pictures := t.TempDir()
			findings := history.Check(test.script.calls, map[string]history.NodeState{nodeA: state(1, "", true)}, time.Minute, pictures)
			if violated := history.Worst(findings) == history.Violated; violated != test.violated {
				t.Errorf("violated: %t; %v", violated, findings)
			}
			made, err := filepath.Glob(filepath.Join(pictures, "*.html"))
			if err != nil || (len(made) > 0) != test.violated {
				t.Errorf("pictures: %v, %v", made, err)
			}
		})
	}
}

// TestAt holds what was kept at a moment against what was acknowledged before, and what began later.
func TestAt(t *testing.T) {
	calls := new(script).
		tickets("a", 1, 2, create("before"), done).
		tickets("a", 3, 12, create("across"), done).
		tickets("b", 11, 14, create("within"), done).
		tickets("b", 15, 16, list, listed("across", "before", "within")).
		tickets("a", 21, 22, create("after"), done).calls
	for name, test := range map[string]struct {
		notes   []string
		verdict history.Verdict
	}{
		"nothing of what was under way": {[]string{"before"}, history.Linearizable},
		"some of it":                    {[]string{"before", "within"}, history.Linearizable},
		"a write is lost":               {[]string{"across"}, history.Violated},
		"a write of later":              {[]string{"across", "after", "before", "within"}, history.Violated},
	} {
		kept := history.At(calls, 10*time.Second, 20*time.Second)
		kept = append(kept, new(script).tickets("in the end", 100, 101, list, listed(test.notes...)).calls...)
		if found := history.Worst(history.Check(kept, nil, time.Minute, "")); found != test.verdict {
			t.Errorf("%s: %s", name, found)
		}
	}
}

// A write of an earlier run whose outcome nobody knows may have its effect in this one.
func TestPending(t *testing.T) {
	earlier := history.Pending(new(script).unknown("a", nodeA, 1, 2, set("x")).unknown("a", nodeA, 3, 4, get).node("a", 5, 6, set("y"), 2, "y", true).calls)
	if len(earlier) != 1 {
		t.Fatalf("%v", earlier)
	}
	h := history.New(earlier)
	h.Add(new(script).node("b", 1, 2, get, 2, "x", true).calls...)
	nodes := map[string]history.NodeState{nodeA: state(1, "", true)}
	if findings := history.Check(h.Calls(), nodes, time.Minute, ""); len(findings) > 0 {
		t.Error(findings)
	}
	if findings := history.Check(h.Calls()[1:], nodes, time.Minute, ""); history.Worst(findings) != history.Violated {
		t.Errorf("without it: %v", findings)
	}
	if again := history.Pending(h.Calls()); len(again) > 0 {
		t.Errorf("it pends for ever: %v", again)
	}
}

func TestNoVerdictIsNoSuccess(t *testing.T) {
	s := new(script)
	for i := range 40 {
		s.unknown("a", nodeA, 1, 2, set(strings.Repeat("x", i+1)))
	}
	s.node("b", 3, 4, get, 41, "none", true)
	if findings := history.Check(s.calls, map[string]history.NodeState{nodeA: state(1, "", true)}, 10*time.Millisecond, ""); history.Worst(findings) != history.Undecided {
		t.Errorf("%v", findings)
	}
	if findings := history.Check(new(script).node("a", 1, 2, get, 1, "", true).calls, nil, time.Minute, ""); history.Worst(findings) != history.Invalid {
		t.Errorf("of a node whose beginning is not known: %v", findings)
	}
}

func TestLost(t *testing.T) {
	calls := new(script).
		tickets("a", 1, 2, create("kept"), done).tickets("a", 3, 4, create("gone"), done).tickets("a", 5, 6, revoke("gone"), done).
		tickets("a", 7, 8, create("maybe"), done).unknown("a", history.Tickets, 9, 10, revoke("maybe")).unknown("a", history.Tickets, 9, 10, create("other")).
		node("a", 1, 2, set("x"), 2, "x", true).node("a", 3, 4, set("y"), 3, "y", true).calls
	unknown := new(script).unknown("b", nodeA, 1, 2, set("z")).calls
	final := func(generation uint64, label string, role bool, notes ...string) history.Final {
		return history.Final{Curator: "curator 1", Nodes: map[string]history.NodeState{nodeA: state(generation, label, role)}, Notes: notes}
	}
	for _, test := range []struct {
		name    string
		calls   []history.Call
		final   history.Final
		problem string
	}{
		{"nothing", calls, final(3, "y", true, "kept"), ""},
		{"nothing that is known", append(unknown, calls...), final(4, "z", true, "kept", "maybe", "other"), ""},
		{"a ticket", calls, final(3, "y", true, "maybe"), "ticket kept was acknowledged"},
		{"that it was revoked", calls, final(3, "y", true, "gone", "kept"), "ticket gone was revoked"},
		{"a label", calls, final(3, "x", true, "kept"), "label 0 of node " + nodeA + ` is "x"`},
		{"a generation", calls, final(2, "y", true, "kept"), "generation 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			findings := history.Lost(test.calls, []history.Final{test.final})
			if test.problem == "" && len(findings) > 0 || test.problem != "" && (len(findings) != 1 || !strings.Contains(findings[0].Problem, test.problem)) {
				t.Errorf("%v", findings)
			}
		})
	}
}

func TestTraffic(t *testing.T) {
	objects := []string{nodeA, history.Tickets}
	phases, least := history.Phases{Struck: 10 * time.Second, Healed: 20 * time.Second}, history.Least{Before: 1, Between: 1, After: 1}
	write := func(s *script, second int) *script {
		return s.node("a", second, second+1, set("x"), 2, "x", true).tickets("a", second, second+1, create("1"), done)
	}
	if findings := history.Traffic(write(write(write(new(script), 1), 12), 20).calls, objects, phases, least); len(findings) > 0 {
		t.Errorf("enough: %v", findings)
	}
	for name, s := range map[string]*script{
		"before": write(write(new(script), 12), 20), "during": write(write(new(script), 1), 20), "after": write(write(new(script), 1), 12),
		"only reads before": write(write(new(script).node("a", 1, 2, get, 1, "", true), 12), 20),
		"only across":       write(write(new(script).node("a", 9, 11, set("x"), 2, "x", true).tickets("a", 9, 11, create("1"), done), 12), 20),
		"only unknown":      write(write(new(script).unknown("a", nodeA, 1, 2, set("x")).unknown("a", history.Tickets, 1, 2, create("1")), 12), 20),
		"only on one":       write(write(new(script).node("a", 1, 2, set("x"), 2, "x", true), 12), 20),
		"only refused":      write(write(new(script).refused("a", 1, 2, set("x"), history.Absent), 12), 20),
	} {
		if findings := history.Traffic(s.calls, objects, phases, least); history.Worst(findings) != history.Invalid {
			t.Errorf("%s: %v", name, findings)
		}
	}
}

func TestAwaitWrites(t *testing.T) {
	h := history.New(nil)
	h.Add(new(script).node("a", 1, 2, set("x"), 2, "x", true).calls...)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.AwaitWrites(ended, 1, nodeA); err == nil {
		t.Error("what was there before it was waited for was counted")
	}
	began, waited := make(chan struct{}), make(chan error)
	go func() {
		close(began)
		waited <- h.AwaitWrites(t.Context(), 1, nodeA)
	}()
	<-began
	for s := new(script); ; {
		select {
		case err := <-waited:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			// Only what is added after it has begun to wait counts, and nobody can see when that is.
			h.Add(s.node("a", 1, 2, get, 1, "", true).node("a", 1, 2, set("x"), 2, "x", true).calls[0:2]...)
		}
	}
}
