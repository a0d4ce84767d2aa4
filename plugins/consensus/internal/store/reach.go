package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

const (
	// lookInterval is how often the other members are asked how they are while all answer, and lookAgain while one does not, or says that another one does not. A learner that does
	// not answer is asked again after a quarter of the time for which it has not, if that is less: it votes only when all have heard it. It is looked with each lookTick whom to ask.
	lookInterval = 10 * time.Second
	lookAgain    = 2 * time.Second
	lookTick     = 200 * time.Millisecond
	missedPart   = 4
	// missedFor is how long a member must not have answered until that is told. Whoever misses one says so when it asks the others, and has them ask, too. So within that time whoever reaches it
	// has asked it again, and has been asked: what is older than that says nothing of it.
	missedFor = 2*lookAgain + 2*answerBound
)

// reach is which of the other members answer the local one, and what they say.
type reach struct {
	mu    sync.Mutex
	asked time.Time
	// told is when another member last said that it misses one, which the local one may have heard.
	told time.Time
	of   map[uint64]heard
}

// heard is how another member answered when it was last asked.
type heard struct {
	state peers.State
	// missed is since when it does not answer; zero: it answers.
	missed time.Time
}

// note takes in what the members said that answered, of those that were asked.
func (r *reach) note(asked []Peer, answers map[uint64]peers.State, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.of
	r.asked, r.of = now, make(map[uint64]heard, len(asked))
	for _, peer := range asked {
		state, answered := answers[peer.ID]
		one := heard{state: state}
		if !answered {
			if one.missed = before[peer.ID].missed; one.missed.IsZero() {
				one.missed = now
			}
		}
		r.of[peer.ID] = one
	}
}

// due reports whether it is time to ask the others.
func (r *reach) due(others []Peer, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := now.Sub(r.asked)
	for _, peer := range others {
		one, known := r.of[peer.ID]
		missed := !one.missed.IsZero()
		again := lookAgain
		if missed && peer.Learner {
			again = min(again, now.Sub(one.missed)/missedPart)
		}
		if !known || (missed || len(one.state.Unreached) > 0) && since >= again {
			return true
		}
	}
	return len(others) > 0 && (since >= lookInterval || now.Sub(r.told) < missedFor && since >= lookAgain)
}

// hasten has the others be asked more often for a while.
func (r *reach) hasten(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = now
}

// misses reports whether a voter does not answer, from the first time on.
func (r *reach) misses(others []Peer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(others, func(peer Peer) bool { return !peer.Learner && !r.of[peer.ID].missed.IsZero() })
}

// tell says in the state of the local member whom it reaches.
func (r *reach) tell(state *peers.State, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state.Asked, state.AskedAgo = true, now.Sub(r.asked).Milliseconds()
	for id, one := range r.of {
		switch {
		case one.missed.IsZero():
			state.Reached = append(state.Reached, peers.FormatMember(id))
		case now.Sub(one.missed) >= missedFor:
			state.Unreached = append(state.Unreached, peers.FormatMember(id))
		}
	}
	slices.Sort(state.Reached)
	slices.Sort(state.Unreached)
}

// states are what the members last said that answer, and missed are the others.
func (r *reach) states(now time.Time) (states map[uint64]peers.State, missed []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	states = make(map[uint64]peers.State, len(r.of))
	for id, one := range r.of {
		if one.missed.IsZero() {
			one.state.AskedAgo += now.Sub(r.asked).Milliseconds()
			states[id] = one.state
		} else {
			missed = append(missed, id)
		}
	}
	return states, missed
}

// Cut is a member that another one does not reach, although somebody reaches it.
type Cut struct {
	// From and To are the nodes of the members.
	From, To string
}

// Links says by what the members say that answer, the local one among them, which ones nobody reaches, and which ones are only not reached by some. Nodes are sorted.
func Links(members []Peer, states map[uint64]peers.State) (silent []string, cuts []Cut) {
	for _, to := range members {
		id := peers.FormatMember(to.ID)
		var missedBy []string
		reached := false
		for _, from := range members {
			state := states[from.ID]
			if slices.Contains(state.Unreached, id) {
				missedBy = append(missedBy, from.Node)
			}
			reached = reached || slices.Contains(state.Reached, id) && state.AskedAgo < missedFor.Milliseconds()
		}
		switch {
		case len(missedBy) == 0:
		case reached:
			for _, from := range missedBy {
				cuts = append(cuts, Cut{From: from, To: to.Node})
			}
		default:
			silent = append(silent, to.Node)
		}
	}
	slices.Sort(silent)
	slices.SortFunc(cuts, func(a, b Cut) int { return strings.Compare(a.From+" "+a.To, b.From+" "+b.To) })
	return silent, cuts
}

// listen asks the other members from time to time how they are, until the returned function is called. The leader asks more often, for its own sake.
func (s *Store) listen(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		ticker := time.NewTicker(lookTick)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if s.closing() {
				continue
			}
			if s.reach.due(s.otherPeers(), time.Now()) {
				s.Ask(ctx)
			}
		}
	})
	return func() {
		cancel()
		asking.Wait()
	}
}

// links are the links between the members, by what was last heard. Without a quorum it is told at once that a member does not answer.
func (s *Store) links(quorum bool) (silent []string, cuts []Cut) {
	members := s.Peers()
	states, missed := s.reach.states(time.Now())
	states[uint64(s.etcd.Server.MemberID())] = s.state()
	silent, cuts = Links(members, states)
	if quorum {
		return silent, cuts
	}
	silent = nil
	for _, member := range members {
		if slices.Contains(missed, member.ID) {
			silent = append(silent, member.Node)
		}
	}
	return silent, cuts
}

// Threat says which members the store is without, or which ones do not reach each other, and what to do about it; empty: none. The store does its work all the same.
func (s Status) Threat() string {
	var threats []string
	if damaged := s.damaged(); damaged != "" {
		threats = append(threats, damaged)
	}
	if len(s.Silent) > 0 {
		threats = append(threats, strings.TrimPrefix(s.silence(), ": "))
	}
	for _, cut := range s.Cuts {
		back := Cut{From: cut.To, To: cut.From}
		switch {
		case !slices.Contains(s.Cuts, back):
			threats = append(threats, fmt.Sprintf("the member of %s does not reach that of %s, which others reach", cut.From, cut.To))
		case cut.From < cut.To:
			threats = append(threats, fmt.Sprintf("the members of %s and %s do not reach each other, and others reach both", cut.From, cut.To))
		}
	}
	if len(s.Cuts) > 0 {
		threats = append(threats, "open the way between these nodes, to the addresses and ports at which the members listen")
	}
	return strings.Join(threats, "; ")
}
