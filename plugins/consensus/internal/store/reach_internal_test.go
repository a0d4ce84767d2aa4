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
}
