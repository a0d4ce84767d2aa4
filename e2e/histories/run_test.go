package histories_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/history"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// pinned is how many clients each curator has, and roaming how many fail over.
	pinned  = 2
	roaming = 2
	// enough is how many acknowledged writes are waited for on each object before a fault, during it and after it: more than a run needs, since those count nowhere that
	// were made across two of these. inTurn is how many are waited for between two of several faults of one run.
	enough = 12
	inTurn = 3
	// checkWithin is how long the checker may take for one object.
	checkWithin = time.Minute
)

// least is what makes a run valid.
var least = history.Least{Before: 5, Between: 3, After: 5}

// result is what became of a run.
type result struct {
	calls    []history.Call
	findings []history.Finding
	unsent   int
	took     time.Duration
}

// writes waits until so many more writes are acknowledged on each object.
func (s *scene) writes(t *testing.T, h *history.History, more int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// If there are too few the run is invalid, and says so.
	if err := h.AwaitWrites(ctx, more, s.objects()...); err != nil {
		t.Logf("traffic: %v", err)
	}
}

// objects are those of the histories.
func (s *scene) objects() []string {
	objects := []string{history.Tickets}
	for _, node := range s.nodes {
		objects = append(objects, node.id)
	}
	return objects
}

// run makes one run with a fault. number tells it from the others of the test.
func (s *scene) run(t *testing.T, number int, fault fault, seed uint64) result {
	t.Helper()
	began := time.Now()
	work, initial := s.workload(t, fmt.Sprintf("h%d", number))
	if fault.failOver {
		// None of these reads may fail, and a machine that has other work is no reason to.
		work.readWithin = patience
	}
	stop := s.clients(work, number, seed)
	defer stop()

	h := work.history
	s.writes(t, h, enough)
	phases := history.Phases{Struck: h.Now()}
	fault.strike(t, s, h)()
	s.settle(t)
	phases.Healed = h.Now()
	s.writes(t, h, enough)
	stop()
	ended := h.Now()

	finals := s.finals(t, work)
	r := result{calls: h.Calls(), unsent: work.unsent}
	s.pending = history.Pending(r.calls)
	r.findings = append(r.findings, history.Traffic(r.calls, s.objects(), phases, least)...)
	r.findings = append(r.findings, history.Check(r.calls, initial, checkWithin, pictures(t, number))...)
	r.findings = append(r.findings, history.Lost(r.calls, finals)...)
	r.findings = append(r.findings, s.watched(t, finals[0].Nodes)...)
	for _, strange := range work.strange {
		r.findings = append(r.findings, history.Finding{Verdict: history.Violated, Problem: "nobody should be answered so: " + strange})
	}
	if fault.failOver && work.failed > 0 {
		r.findings = append(r.findings, history.Finding{Verdict: history.Violated, Problem: fmt.Sprintf("%d reads failed of who fails over", work.failed)})
	}
	s.followsRecords(t)
	s.tidy(t, work)
	r.took = time.Since(began)
	t.Logf("run %d, %s: %s after %.1f s: %d calls, %.1f s before the fault, %.1f s until it was healed, %.1f s after that",
		number, fault.name, history.Worst(r.findings), r.took.Seconds(), len(r.calls), phases.Struck.Seconds(), (phases.Healed - phases.Struck).Seconds(),
		(ended - phases.Healed).Seconds())
	return r
}

// workload is that of a run whose notes and values begin with a prefix, and how the nodes are before it.
func (s *scene) workload(t *testing.T, prefix string) (work *workload, initial map[string]history.NodeState) {
	t.Helper()
	work = &workload{
		history: history.New(s.pending), prefix: prefix, others: s.others, modelled: s.modelled,
		tickets: make(map[string]string), generations: make(map[string]uint64), readWithin: callTimeout,
	}
	initial = make(map[string]history.NodeState)
	for _, node := range s.records(t) {
		id := node.GetRecord().GetId()
		initial[id] = stateOf(node.GetRecord())
		work.nodes = append(work.nodes, id)
		work.generations[id] = initial[id].Generation
	}
	return work, initial
}

// clients starts all clients of a run; stop ends them, and may be called twice.
func (s *scene) clients(work *workload, number int, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	begin := func(access *access, count int) {
		for i := range count {
			name := fmt.Sprintf("%s client %d", access.name, i+1)
			c := &client{workload: work, name: name, access: access, other: s.curators[(slices.Index(s.curators, access)+1)%len(s.curators)]}
			c.random = rand.New(rand.NewPCG(seed, uint64(number)<<16|uint64(slices.Index(s.curators, access)+1)<<8|uint64(i)))
			calling.Go(func() { c.run(ctx) })
		}
	}
	for _, curator := range s.curators {
		begin(curator, pinned)
	}
	begin(s.anyCurator, roaming)
	return func() {
		cancel()
		calling.Wait()
	}
}

// finals asks every curator for everything, when everything has healed. What they answer is a part of the history, too.
func (s *scene) finals(t *testing.T, work *workload) (finals []history.Final) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, curator := range s.curators {
		finals = append(finals, work.final(ctx, t, curator))
	}
	return finals
}

// final asks a curator for everything that the run is about.
func (w *workload) final(ctx context.Context, t *testing.T, curator *access) history.Final {
	t.Helper()
	final := history.Final{Curator: curator.name, Nodes: make(map[string]history.NodeState)}
	began := w.history.Now()
	answers, err := readNodes(ctx, curator.api)
	if err != nil {
		t.Fatalf("%s, in the end: %v", curator.name, err)
	}
	for _, id := range w.nodes {
		answer, ok := answers[id].(history.NodeOutput)
		if !ok {
			t.Fatalf("%s, in the end, has no node %s", curator.name, id)
		}
		final.Nodes[id] = answer.State
		w.history.Add(history.Call{Client: "in the end", Object: id, Input: history.NodeInput{}, Output: answer, Began: began, Ended: w.history.Now()})
	}
	began = w.history.Now()
	tickets, err := readTickets(ctx, curator.api, w.prefix)
	if err != nil {
		t.Fatalf("%s, in the end: %v", curator.name, err)
	}
	final.Notes = notesOf(tickets)
	w.history.Add(history.Call{
		Client: "in the end", Object: history.Tickets, Input: history.TicketInput{}, Output: history.TicketOutput{Notes: final.Notes}, Began: began, Ended: w.history.Now(),
	})
	return final
}

// tidy takes the tickets of a run back: a cluster keeps only so many.
func (s *scene) tidy(t *testing.T, work *workload) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tickets, err := readTickets(ctx, s.anyCurator.api, work.prefix)
	for _, ticket := range tickets {
		if err == nil {
			_, err = s.anyCurator.api.RevokeTicket(ctx, &clusterv1.RevokeTicketRequest{TicketId: ticket.GetId()})
		}
	}
	if err != nil {
		t.Fatalf("the tickets of the run cannot be revoked: %v", err)
	}
}

// pictures is the directory for what shows why a run failed.
func pictures(t *testing.T, number int) string {
	return filepath.Join(shared.Programs.Workspace, "var", "test", "histories", t.Name(), fmt.Sprint(number))
}
