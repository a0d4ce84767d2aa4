package store

import (
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// TestMissedLearnerIsAskedLessAndLess has a learner not answer: it is asked again soon, and as seldom as a voter when it has not answered for long.
func TestMissedLearnerIsAskedLessAndLess(t *testing.T) {
	learner, voter := Peer{ID: 2, Learner: true}, Peer{ID: 2}
	now := time.Now()
	for _, step := range []struct {
		peer     Peer
		missed   time.Duration // for so long it has not answered
		since    time.Duration // it was last asked so long ago
		expected bool
	}{
		{learner, 0, 0, true}, {learner, time.Second, lookTick, false}, {learner, time.Second, time.Second / missedPart, true},
		{learner, time.Hour, lookAgain - lookTick, false}, {learner, time.Hour, lookAgain, true},
		{voter, time.Second, lookAgain - lookTick, false}, {voter, time.Second, lookAgain, true},
	} {
		r := reach{asked: now.Add(-step.since), of: map[uint64]heard{step.peer.ID: {missed: now.Add(-step.missed)}}}
		if due := r.due([]Peer{step.peer}, now); due != step.expected {
			t.Errorf("%+v: due %v", step, due)
		}
	}
	// One that answers at once is heard as soon as it is there.
	r := reach{asked: now, of: map[uint64]heard{}}
	if !r.due([]Peer{learner}, now) {
		t.Error("a learner that has just been added is not asked")
	}
	r.note([]Peer{learner}, map[uint64]peers.State{2: {}}, now)
	if r.due([]Peer{learner}, now.Add(lookInterval-lookTick)) {
		t.Error("one that answers is asked as often as one that does not")
	}
	// Who is asked by one that misses somebody asks the others more often for a while.
	r.hasten(now)
	if r.due([]Peer{learner}, now.Add(lookAgain-lookTick)) || !r.due([]Peer{learner}, now.Add(lookAgain)) {
		t.Error("another member misses one, and the others are not asked then")
	}
	r.note([]Peer{learner}, nil, now)
	if r.misses([]Peer{learner}) || !r.misses([]Peer{voter}) {
		t.Error("what is missed is not a voter that does not answer")
	}
	later := now.Add(missedFor)
	r.note([]Peer{voter}, map[uint64]peers.State{2: {}}, later)
	if r.misses([]Peer{voter}) || r.due([]Peer{voter}, later.Add(lookAgain)) {
		t.Error("all is well, and the others are asked again")
	}
}
